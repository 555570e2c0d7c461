"""Preprocessing in a process of its own: the same windows, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from nq.config import WindowConfig
from nq.errors import Error
from nq.preprocess import prefetch as module
from nq.preprocess.prefetch import ahead
from nq.preprocess.prepare import Request, prepare
from nq.preprocess.store import COMPLETED, LOCK
from tests.nq_records import simplified, write_lines, write_vocab

ROOT = Path(__file__).parents[2]
CONFIG = WindowConfig(max_seq_length=48, max_query_length=12, doc_stride=16)
PATIENCE_S = 60.0
LEFT_ALONE = """
import sys, time
from pathlib import Path
from nq.config import WindowConfig
from nq.preprocess.prefetch import ahead
from nq.preprocess.prepare import Request
import psutil
request = Request((sys.argv[1],), sys.argv[2], WindowConfig(max_seq_length=48, max_query_length=12))
with ahead([(request, Path(sys.argv[3]))]):
    while not list(Path(sys.argv[3]).glob(".unfinished-*/progress")):
        time.sleep(0.01)
    print(psutil.Process().children()[0].pid, flush=True)
    time.sleep(600)
"""
INTERRUPTED = """
import signal, sys, time
from pathlib import Path
from nq.config import WindowConfig
from nq.preprocess.prefetch import ahead
from nq.preprocess.prepare import Request
request = Request((sys.argv[1],), sys.argv[2], WindowConfig(max_seq_length=48, max_query_length=12))
signal.signal(signal.SIGINT, signal.default_int_handler)  # where it was ignored
try:
    with ahead([(request, Path(sys.argv[3]))]):
        print("begun", flush=True)
        time.sleep(600)
except KeyboardInterrupt:
    print("ended")
"""


def request(folder: Path, examples: int = 20) -> Request:
    data = write_lines(folder / "a.jsonl", [*(simplified(i) for i in range(examples)), b"[]"])
    return Request((str(data),), str(write_vocab(folder)), CONFIG)


def children() -> list[psutil.Process]:
    """The processes that prepare ahead; other tests may have left others."""
    return [p for p in psutil.Process().children() if is_ahead(p)]


def is_ahead(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return module.__name__ in process.cmdline()
    return False


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.glob("*.*") if p.name != "manifest.json"}


def test_makes_what_prepare_makes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    asked = request(tmp_path)
    with ahead([(asked, tmp_path / "one")]) as made_ahead:
        assert len(children()) == 1
        (found,) = made_ahead
    made = prepare(asked, tmp_path / "other")
    assert contents(tmp_path / "one") == contents(tmp_path / "other")
    assert (found.examples, found.windows, found.dead_letters) == (20, made.windows, 1)
    assert found.reused  # the other process made it
    assert capfd.readouterr() == ("", "")
    assert not children()


def test_the_first_portion_is_there_while_another_is_made(tmp_path: Path) -> None:
    first, second = (request(folder, n) for folder, n in ((tmp_path, 20), (made(tmp_path), 3000)))
    second = replace(second, first_file=1)
    with ahead([(first, tmp_path / "one"), (second, tmp_path / "two")]) as found:
        assert next(found).examples == 20
        assert len(children()) == 1 and not (tmp_path / "two" / COMPLETED).exists()
        later = next(found)
        assert later.examples == 3000 and later.reused
        assert [path.name for path in later.shards] == ["windows-1-00000-of-00001.tfrecord"]


def made(folder: Path) -> Path:
    (folder / "second").mkdir()
    return folder / "second"


def test_what_is_there_takes_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = request(tmp_path)
    made = prepare(asked, tmp_path / "out")
    monkeypatch.delattr(module, "subprocess")
    with ahead([(asked, tmp_path / "out")]) as found:
        assert [one.shards for one in found] == [made.shards]


def test_fails_as_prepare_does(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    asked = request(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").touch()
    with (
        ahead([(asked, tmp_path / "out")]) as found,
        pytest.raises(Error, match="holds other files"),
    ):
        next(found)
    assert capfd.readouterr() == ("", "")


def test_a_process_that_died_is_made_good(tmp_path: Path) -> None:
    asked = request(tmp_path)
    with ahead([(asked, tmp_path / "out")]) as found:
        children()[0].kill()
        assert not next(found).reused


def test_who_waits_no_longer_leaves_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = request(tmp_path, 5000)
    with ahead([(asked, tmp_path / "out")]):
        until(lambda: list(tmp_path.glob("out/.unfinished-*/progress")))
    assert not children()
    assert [p.name for p in (tmp_path / "out").iterdir()] == [LOCK]
    assert capfd.readouterr() == ("", "")


def test_modules_of_the_working_folder_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = request(tmp_path)
    (tmp_path / "pickle.py").write_text("raise SystemExit('a script of the user')")
    monkeypatch.chdir(tmp_path)
    with ahead([(asked, tmp_path / "out")]) as found:
        assert next(found).reused
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("delay_s", [0.1, 0.2, 0.4])  # the process still imports
def test_ctrl_c_is_told_by_the_process_that_started_it(tmp_path: Path, delay_s: float) -> None:
    asked = request(tmp_path, 5000)
    command = [sys.executable, "-c", INTERRUPTED, *asked.files, asked.tokenizer]
    parent = subprocess.Popen(
        [*command, str(tmp_path / "out")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == "begun\n"
    time.sleep(delay_s)
    os.killpg(parent.pid, signal.SIGINT)  # as a terminal does
    assert parent.communicate(timeout=PATIENCE_S) == ("ended\n", "")


@pytest.mark.parametrize("before", ["", "trap '' INT; "])  # as for a job in a shell's background
def test_ends_with_the_process_that_started_it(tmp_path: Path, before: str) -> None:
    asked = request(tmp_path, 5000)
    command = [sys.executable, "-c", LEFT_ALONE, *asked.files, asked.tokenizer]
    parent = subprocess.Popen(
        ["sh", "-c", f'{before}exec "$@"', "sh", *command, str(tmp_path / "out")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    until(lambda: not psutil.pid_exists(child))
    assert [p.name for p in (tmp_path / "out").iterdir()] == [LOCK]


def until(holds: object) -> None:
    """Waits until it does."""
    end = time.monotonic() + PATIENCE_S
    while not holds():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)
