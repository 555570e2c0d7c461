"""Windows that Beam makes: the bytes of the plain loop, and what happens when a worker dies."""

import errno
import gc
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from nq.beam import runner
from nq.beam.windows import by_workers
from nq.errors import Error
from nq.preprocess import shards
from nq.preprocess.features import Sampling
from nq.preprocess.prepared import prepare
from nq.questions import Questions
from nq.storage import UNFINISHED
from tests.preprocess.test_prepared import RECORDS, SMALL, folder_bytes, make_request
from tests.support.child_processes import PATIENCE_S, children, wait_until
from tests.support.full_disk import small_files


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of Beam that raise errors because workers end may take as long as they need."""
    monkeypatch.setattr(runner, "THREADS_TIMEOUT_S", PATIENCE_S)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("training", "limit", "workers", "options"),
    [
        (None, None, 3, []),
        (Sampling(0.5, 7), 33, 2, []),
        (None, None, None, ["--runner=FnApiRunner"]),
    ],
    ids=str,
)
def test_the_plain_loop_writes_the_bytes_of_any_number_of_workers(
    tmp_path: Path,
    training: Sampling | None,
    limit: int | None,
    workers: int | None,
    options: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shards, "SHARD_BYTES", SMALL)
    request = make_request(tmp_path)
    questions = Questions(request.questions.files, limit=limit)
    request = replace(request, questions=questions, training=training)
    by_beam = prepare(request, tmp_path / "beam", by_workers(workers, options))
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    by_loop = prepare(request, tmp_path / "loop", by_workers(1))
    assert folder_bytes(tmp_path / "loop") == folder_bytes(tmp_path / "beam")
    counts = by_loop.counts
    assert counts == by_beam.counts
    assert counts.examples + counts.dead_letters == (limit or RECORDS)


@pytest.mark.slow
def test_an_error_while_writing_is_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The output of workers has more than 500 bytes, too."""
    request = make_request(tmp_path)
    with small_files(500), pytest.raises(OSError) as caught:
        prepare(request, tmp_path / "out", by_workers(2))
    assert caught.value.errno == errno.EFBIG
    assert Path(caught.value.filename).parent == tmp_path / "out"
    assert not list(tmp_path.glob(f"out/{UNFINISHED}*"))
    assert capfd.readouterr() == ("", "")
    del caught
    gc.collect()  # here, where the warning that Beam left the file open is filtered


def test_a_killed_worker_is_an_error_and_does_not_hang(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def kill_one() -> None:
        wait_until(lambda: children("nq.beam.worker"))
        children("nq.beam.worker")[0].kill()

    killer = threading.Thread(target=kill_one)
    killer.start()
    with pytest.raises(Error, match=r"killed.* --workers"):
        prepare(make_request(tmp_path), tmp_path / "out", by_workers(2))
    killer.join()
    assert not list(tmp_path.glob(f"out/{UNFINISHED}*"))
    assert capfd.readouterr() == ("", "")
