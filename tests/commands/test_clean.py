"""Tests ``nq clean``: its options and what it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from nq.storage import RUN, WINDOWS, cache_folder, hold
from tests.conftest import Commands
from tests.folders import write


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default folder, with windows of 3 MiB and a finished run, and a converted model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "runs"
    windows = folder / "windows-0123456789ab"
    with hold(windows, WINDOWS):
        write(windows / "windows-00000-of-00001.tfrecord", "x" * (3 << 20))
    with hold(folder / "grappler-1", RUN):
        write(folder / "grappler-1" / "job.json", "{}")
    write(cache_folder() / "graphs" / "0123" / "tensorflow-2" / "model.bin", "x" * (1 << 20))
    return folder


def test_the_table_has_sizes_and_reasons(runs: Path, commands: Commands) -> None:
    for dry_run, verb in ((["--dry-run"], "would remove"), ([], "removed")):
        assert commands.out("clean", *dry_run).splitlines() == [
            "keep              2 bytes  runs/grappler-1: results of a run (--runs removes it)",
            f"{verb:<13}     3.0 MiB  runs/windows-0123456789ab: prepared windows",
            f"{verb:<13}     1.0 MiB  {cache_folder() / 'graphs'}: converted models",
            f"{verb} 4.0 MiB in 2 of 3 places",
        ]
        assert runs.joinpath("windows-0123456789ab").exists() == bool(dry_run)
        assert (cache_folder() / "graphs").exists() == bool(dry_run)
    assert [path.name for path in runs.iterdir()] == ["grappler-1"]


@pytest.mark.usefixtures("runs")
def test_json_has_what_was_removed_and_what_was_kept(commands: Commands) -> None:
    result = commands.json("clean", "runs")
    assert (result["dry_run"], result["removed_bytes"]) == (False, 3 << 20)
    assert [item["path"] for item in result["removed"]] == ["runs/windows-0123456789ab"]
    (kept,) = result["kept"]
    assert (kept["path"], kept["reason"]) == ("runs/grappler-1", "--runs removes it")
    assert (cache_folder() / "graphs").exists()  # a folder was named


def test_without_the_default_folder_there_is_nothing_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: Commands
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert commands.out("clean") == "removed 0 bytes in 0 of 0 places\n"
    assert "nowhere: No such file or directory" in commands.error("clean", "nowhere")
