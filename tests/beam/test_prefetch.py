"""Preprocessing in another process: the same windows, and no process that remains."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from nq.beam.prepare import Request, prefetch, prepare
from nq.config import WindowConfig
from nq.storage import MARK
from tests.child_processes import PATIENCE_S, ROOT, children, wait_until
from tests.nq_records import simplified, write_lines
from tests.tiny_models import write_vocab

MODULE = prefetch.__module__
CONFIG = WindowConfig(max_seq_length=48, max_query_length=12, doc_stride=16)
PARENT = """
import signal, sys, time
from pathlib import Path
import psutil
from nq.config import WindowConfig
from nq.beam.prepare import Request, prefetch
request = Request((sys.argv[1],), sys.argv[2], WindowConfig(max_seq_length=48, max_query_length=12))
if sys.argv[4] == "SIGINT":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # where it was ignored
try:
    with prefetch([(request, Path(sys.argv[3]))], workers=1):  # in Beam, which takes longer
        print(psutil.Process().children()[0].pid, flush=True)
        time.sleep(600)
except KeyboardInterrupt:
    print("ended")
"""
"""Prefetches, and prints the id of the other process."""


def make_request(folder: Path, examples: int = 20) -> Request:
    data = write_lines(folder / "a.jsonl", [*(simplified(i) for i in range(examples)), b"[]"])
    return Request((str(data),), str(write_vocab(folder / "vocab.txt")), CONFIG)


def contents(folder: Path) -> dict[str, bytes]:
    paths = (p for p in folder.iterdir() if p.is_file() and p.name not in ("manifest.json", MARK))
    return {path.name: path.read_bytes() for path in paths}


@pytest.mark.slow
def test_writes_what_prepare_writes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = make_request(tmp_path)
    expected = prepare(request, tmp_path / "other")
    with monkeypatch.context() as patch, prefetch([(request, tmp_path / "one")]) as folders:
        patch.delattr("nq.beam.prepare.unfinished")  # the other process does the work
        assert len(children(MODULE)) == 1
        (prepared,) = folders
    assert contents(tmp_path / "one") == contents(tmp_path / "other")
    assert (prepared.examples, prepared.windows) == (20, expected.windows)
    assert (prepared.dead_letters, prepared.reused) == (1, False)
    assert prepared.seconds > 0
    assert prepare(request, tmp_path / "one") == replace(prepared, reused=True)
    assert capfd.readouterr() == ("", "")
    assert not children(MODULE)


def test_the_work_of_a_killed_process_is_done_here(tmp_path: Path) -> None:
    request = make_request(tmp_path)
    with prefetch([(request, tmp_path / "out")]) as folders:
        children(MODULE)[0].kill()
        prepared = next(folders)
        assert prepared.examples == 20 and not prepared.reused


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "number"),
    [("", signal.SIGINT), ("trap '' INT; ", signal.SIGKILL)],  # as for a job in the background
)
def test_ends_with_the_process_that_started_it(
    tmp_path: Path, before: str, number: signal.Signals
) -> None:
    request = make_request(tmp_path, 5000)
    command = [sys.executable, "-c", PARENT, *request.files, request.tokenizer]
    parent = subprocess.Popen(
        ["sh", "-c", f'{before}exec "$@"', "sh", *command, str(tmp_path / "out"), number.name],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    wait_until(lambda: list(tmp_path.glob("out/.unfinished-*/progress")))
    os.killpg(parent.pid, number)  # as a terminal sends Ctrl-C
    output = parent.communicate(timeout=PATIENCE_S)
    assert output == ("ended\n" if number == signal.SIGINT else "", "")
    wait_until(lambda: not psutil.pid_exists(child))
    assert not (tmp_path / "out").exists()
