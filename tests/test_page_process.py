"""Tests the process that reads pages: its limits, its errors and its end."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from nq.formats import inputs
from nq.formats.documents import page_of
from nq.page_process import PageProcess
from tests.child_processes import children, first_line, started


@pytest.fixture
def process() -> Iterator[PageProcess]:
    before = children("reads pages")
    with contextlib.closing(PageProcess(0.5)) as process:
        yield process
    assert children("reads pages") == before


def test_pages_and_errors_are_those_of_this_process(process: PageProcess, tmp_path: Path) -> None:
    text = "<p>It <b>rains</b>.</p>\n<ul><li>one<li>two</ul>"
    for name in ("a.html", "a.md", "a.txt"):
        assert process.read(name, page_of, text, name) == page_of(text, name)
    with pytest.raises(ValueError, match=r"^a\.html has no text"):
        process.read("a.html", page_of, "", "a.html")
    with pytest.raises(FileNotFoundError) as error:
        process.read("b.txt", inputs.read_page, str(tmp_path / "b.txt"))
    assert error.value.strerror == "No such file or directory"


@pytest.mark.slow
def test_what_takes_too_long_or_too_much_ends_and_the_next_page_is_read(
    process: PageProcess,
) -> None:
    calls: list[tuple[Callable[..., object], object]] = [
        *((sum, range(1 << 60)), (bytes, 2 << 30)),
        *((math.factorial, 1 << 30), (time.sleep, 600)),
    ]
    for function, argument in calls:
        with pytest.raises(ValueError, match=r"^a page takes more than 0\.5 s or 1 GB"):
            process.read("a page", function, argument)
        assert process.read("a page", page_of, "It rains.", "a page").example.tokens[1] == "It"


@pytest.mark.slow
def test_a_dead_process_is_replaced(process: PageProcess) -> None:
    assert process.read("a page", page_of, "It rains.", "a page")
    (child,) = children("reads pages")
    child.kill()
    child.wait()
    assert process.read("a page", page_of, "It rains.", "a page")


@pytest.mark.slow
def test_the_process_ends_with_its_parent() -> None:
    code = (
        "from nq.page_process import PageProcess; import time; process = PageProcess(1)\n"
        "print(process.read('a', abs, -1), flush=True); time.sleep(600)"
    )
    with started("-c", code) as parent:
        assert first_line(parent) == "1"
        (child,) = psutil.Process(parent.pid).children()
    child.wait(60)
