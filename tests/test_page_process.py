"""Tests the process that reads pages: its limits, its errors and its end."""

import contextlib
import math
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nq import page_process
from nq.formats import inputs
from nq.formats.documents import page_of
from nq.page_process import PageProcess
from nq.worker import python
from tests.support.child_processes import children, wait_until


@pytest.fixture
def process() -> Iterator[PageProcess]:
    others = children("reads pages")
    with contextlib.closing(PageProcess(0.5)) as process:
        yield process
    assert children("reads pages") == others


def test_pages_and_errors_are_those_of_this_process(process: PageProcess, tmp_path: Path) -> None:
    text = "<p>It <b>rains</b>.</p>\n<ul><li>one<li>two</ul>"
    for name in ("a.html", "a.md", "a.txt"):
        assert process.read(name, page_of, text, name) == page_of(text, name)
    with pytest.raises(ValueError, match=r"^a\.html "):
        process.read("a.html", page_of, "", "a.html")
    with pytest.raises(FileNotFoundError) as error:
        process.read("b.txt", inputs.read_page, str(tmp_path / "b.txt"))
    assert error.value.strerror == "No such file or directory"


@pytest.mark.slow
def test_what_takes_too_long_or_too_much_ends_and_the_next_page_is_read(
    process: PageProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[Callable[..., object], object]] = [
        *((sum, range(1 << 60)), (bytes, 2 << 30)),
        *((math.factorial, 1 << 30), (time.sleep, 600)),
    ]
    for function, argument in calls:
        with (
            pytest.raises(ValueError, match=r"^a page .* 0\.5 s .* 1 GB"),
            monkeypatch.context() as m,
        ):
            if function is time.sleep:
                m.setattr(page_process, "WAIT_S", 0.5)
            process.read("a page", function, argument)
        assert process._worker.is_alive  # the next one, before there is a next page
        assert process.read("a page", page_of, "It rains.", "a page").example.tokens[1] == "It"


@pytest.mark.slow
def test_the_start_counts_for_no_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = "import time\nwhile time.process_time() < 3: pass"
    (tmp_path / "sitecustomize.py").write_text(code, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with contextlib.closing(PageProcess(0.1)) as slow:
        assert slow.read("a page", abs, -1) == 1


@pytest.mark.slow
def test_closing_ends_a_call_and_what_it_starts(process: PageProcess) -> None:
    process.read("a page", abs, -1)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(process.read, "a page", time.sleep, 600)
        wait_until(process._lock.locked)
        process.close()
        assert isinstance(call.exception(), ValueError)
    with pytest.raises(ValueError, match=r"^a page "):  # a call that waited for the lock
        process.read("a page", abs, -1)
    assert not process._worker.is_alive


def test_a_hard_limit_that_is_less_than_ours_holds() -> None:
    code = (
        "import contextlib, resource; from nq.page_process import PageProcess\n"
        "with contextlib.closing(PageProcess(60)) as process:\n"
        "    print(*process.read('a page', resource.getrlimit, resource.RLIMIT_CPU))"
    )
    command = python("-c", code)
    command["args"] = ["bash", "-c", 'ulimit -t 50 && exec "$@"', "", *command["args"]]
    done = subprocess.run(**command, capture_output=True, check=True)
    assert [*map(int, done.stdout.split())] == [50, 50]
