"""Tests which folders commands may write to, and the lock and mark while they do."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from nq import __version__
from nq.errors import Error
from nq.folders import (
    KINDS,
    MARK,
    RUN,
    TRAINING,
    WINDOWS,
    Kind,
    check,
    check_output_file,
    check_writable,
    hold,
    kind_of,
)

each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def write(path: Path, text: str = "mine") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def write_json(path: Path, *keys: str) -> Path:
    return write(path, json.dumps(dict.fromkeys(keys, 0)))


def tree(folder: Path) -> dict[str, str | None]:
    """Returns every path below a folder, with the content of files and the targets of links."""
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else path.read_text()
        if path.is_file()
        else None
        for path in folder.rglob("*")
    }


# --- which folders are refused ----------------------------------------------------------------


@each_kind
def test_a_free_folder_is_marked_and_then_known(kind: Kind, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty"):
        folder = tmp_path / name
        for _ in range(2):
            with hold(folder, kind):
                write(folder / "kept")
            assert json.loads((folder / MARK).read_bytes()) == {
                "kind": kind.name,
                "version": __version__,
            }
            assert kind_of(folder) is kind
            assert set(tree(folder)) == {MARK, "kept"}


@each_kind
@pytest.mark.parametrize(
    "name", ["notes.txt", "job.json", "model.safetensors", "results/x", "windows-1.tfrecord", MARK]
)
def test_a_folder_of_others_is_refused_and_not_touched(
    kind: Kind, name: str, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    write(folder / name)
    write(folder / "other.txt")
    before = tree(tmp_path)
    with pytest.raises(Error, match=r"folder holds other files \(.*other.txt.*\); give an"):
        check(folder, kind)
    with pytest.raises(Error, match="holds other files"), hold(folder, kind):
        pass
    assert tree(tmp_path) == before


def test_the_error_names_some_of_the_files(tmp_path: Path) -> None:
    for name in "dcba":
        write(tmp_path / name)
    with pytest.raises(Error, match=r"holds other files \(a, b, c, …\)"):
        check(tmp_path, RUN)


def test_hidden_files_of_others_do_not_matter(tmp_path: Path) -> None:
    write(tmp_path / ".gitignore")
    with hold(tmp_path, RUN):
        pass
    assert tree(tmp_path) == {".gitignore": "mine", MARK: (tmp_path / MARK).read_text()}


def test_a_folder_of_another_kind_is_refused(tmp_path: Path) -> None:
    with hold(tmp_path, TRAINING):
        write(tmp_path / "model.safetensors")
    with pytest.raises(Error, match="holds a training of nq train; give an empty or a new folder"):
        check(tmp_path, RUN)


@pytest.mark.parametrize("damage", ["", "{", "[1]", '{"kind": ["run"]}', '{"kind": "x"}'])
def test_a_damaged_mark_counts_as_none(damage: str, tmp_path: Path) -> None:
    with hold(tmp_path, RUN):
        write(tmp_path / "predictions.json")
    write(tmp_path / MARK, damage)
    with pytest.raises(Error, match="holds"):
        check(tmp_path, RUN)
    write_json(tmp_path / "job.json", "job", "request")
    with hold(tmp_path, RUN):
        assert kind_of(tmp_path) is RUN


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        (RUN, {"job.json": ("job", "request")}),
        (RUN, {"results/request.json": ("profile", "weights", "windows", "batch_size")}),
        (RUN, {RUN.lock: (), f"windows-0123456789ab/{WINDOWS.lock}": ()}),
        (WINDOWS, {"manifest.json": ("request", "counts", "shards"), "COMPLETED": ()}),
        (WINDOWS, {WINDOWS.lock: ()}),
        (TRAINING, {f"training/windows/{WINDOWS.lock}": ()}),
        (TRAINING, {"training/training_state.json": ("settings", "file", "step", "losses")}),
    ],
)
def test_folders_of_earlier_versions_are_known(
    kind: Kind, files: dict[str, tuple[str, ...]], tmp_path: Path
) -> None:
    write(tmp_path / "notes.txt")
    for name, keys in files.items():
        write_json(tmp_path / name, *keys)
    assert kind_of(tmp_path) is kind
    with hold(tmp_path, kind):
        pass
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["job.json", "results/request.json", "manifest.json"])
def test_files_of_these_names_but_other_content_are_those_of_others(
    name: str, tmp_path: Path
) -> None:
    write_json(tmp_path / name, "example_id")
    assert kind_of(tmp_path) is None
    write(tmp_path / name, '{"request": 1')
    assert kind_of(tmp_path) is None


# --- inputs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["job.json", "predictions.json", "dead_letters.jsonl", "metrics.json.tmp", "kaggle.csv"]
)
@pytest.mark.parametrize(
    "link",
    [
        lambda written, source: written,
        lambda written, source: source.symlink_to(written),
        os.link,
    ],
    ids=["itself", "link to it", "hard link"],
)
def test_an_input_that_would_be_overwritten_is_refused(
    name: str, link: Callable[[Path, Path], Path | None], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with hold(folder, RUN):
        written = write(folder / name)
    source = link(written, tmp_path / "input.jsonl") or tmp_path / "input.jsonl"
    before = tree(tmp_path)
    with pytest.raises(Error, match=r"the input .* is the file .*, which would be written: give"):
        check(folder, RUN, [source])
    if source.parent != folder:
        with pytest.raises(Error, match="is the file"):  # as a file of an input folder
            check(folder, RUN, [source.parent])
    assert tree(tmp_path) == before


def test_an_input_folder_that_is_the_output_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "model" / "config.json")
    (tmp_path / "link").symlink_to(tmp_path / "model")
    for source in ("model", "link", "model/../model"):
        with pytest.raises(Error, match=r"the input .* is the output folder: give another"):
            check(tmp_path / "model", TRAINING, [tmp_path / source])


def test_other_inputs_in_the_folder_are_welcome(tmp_path: Path) -> None:
    with hold(tmp_path, RUN):
        data = write(tmp_path / "questions.jsonl")
    check(tmp_path, RUN, [data, tmp_path / "nowhere.jsonl"])
    check(tmp_path / "run", RUN, [tmp_path])


# --- what cannot be written -------------------------------------------------------------------


def test_a_place_that_cannot_be_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "file")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "circle").symlink_to("circle")
    (tmp_path / "to file").symlink_to("file")
    before = tree(tmp_path)
    for name, error, message in (
        ("file", NotADirectoryError, "file is a file, expected a folder: give another"),
        ("file/below", NotADirectoryError, "file is a file, expected a folder"),
        ("dangling", FileNotFoundError, "dangling is a link to nowhere, which is no folder"),
        ("dangling/below/it", FileNotFoundError, "dangling is a link to nowhere, which is no"),
        ("circle", FileNotFoundError, "circle is a link to circle, which is no folder"),
        ("to file", FileNotFoundError, "to file is a link to file, which is no folder"),
    ):
        for use in (check_writable, lambda folder: hold(folder, RUN).__enter__()):
            with pytest.raises(error, match=message):
                use(tmp_path / name)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", ["dead_letters.jsonl", "results/request.json"])
def test_what_is_in_the_place_of_a_file_is_reported_before_the_work(
    name: str, tmp_path: Path
) -> None:
    with hold(tmp_path, RUN):
        write(tmp_path / "job.json")
    (tmp_path / name).mkdir(parents=True)
    with pytest.raises(Error, match=rf"{name} is a folder, expected a file: remove it"):
        check_writable(tmp_path, RUN)
    (tmp_path / name).rmdir()
    for target in ("nowhere", "job.json"):
        (tmp_path / name).symlink_to(tmp_path / target)
        with pytest.raises(Error, match=rf"{name} is a link, expected a file: remove it"):
            check_writable(tmp_path, RUN)
        (tmp_path / name).unlink()
    check_writable(tmp_path, RUN)


def test_what_is_in_the_place_of_a_folder_is_reported_before_the_work(tmp_path: Path) -> None:
    write(tmp_path / "results")
    with pytest.raises(Error, match=r"results is a file, expected a folder: remove it"):
        check_writable(tmp_path, RUN)
    (tmp_path / "results").unlink()
    (tmp_path / "results").symlink_to("nowhere")
    with pytest.raises(Error, match=r"results is a link, expected a folder: remove it"):
        check_writable(tmp_path, RUN)
    (tmp_path / "nowhere").mkdir()
    check_writable(tmp_path, RUN)  # a link to another disk is welcome


def test_an_output_file(tmp_path: Path) -> None:
    source = write(tmp_path / "input")
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    os.link(source, tmp_path / "same")
    check_output_file(tmp_path / "folder" / "new", [source])
    check_output_file(source)
    for name, message in (
        ("link", "link is a link, expected a file"),
        ("folder", "folder is a folder, expected a file"),
        ("same", "the input .*input is the file to write: give another file"),
    ):
        with pytest.raises(Error, match=message):
            check_output_file(tmp_path / name, [source])


# --- one command at a time --------------------------------------------------------------------


def test_two_commands_do_not_share_a_folder(tmp_path: Path) -> None:
    with hold(tmp_path / "run", RUN), hold(tmp_path / "other", RUN):
        with pytest.raises(Error, match="another run writes"), hold(tmp_path / "run", RUN):
            pass
        (tmp_path / "other" / "kept").touch()
    assert set(tree(tmp_path)) == {"other", "other/kept", f"other/{MARK}"}
    with pytest.raises(FileNotFoundError, match="of the block"), hold(tmp_path / "run", RUN):
        raise FileNotFoundError("of the block")
    with hold(tmp_path / "run", RUN):
        pass
    assert not (tmp_path / "run").exists()


def test_an_empty_folder_of_the_user_stays(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with hold(tmp_path / "empty", RUN):
        pass
    assert tree(tmp_path) == {"empty": None}


def test_a_folder_that_vanishes_does_not_hide_the_error(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(ValueError, match="of the block"), hold(folder, RUN):
        folder.rename(tmp_path / "moved")
        raise ValueError("of the block")


def test_of_many_commands_one_at_a_time_has_the_folder(tmp_path: Path) -> None:
    inside, counts, refused = list[int](), list[int](), list[int]()

    def run(number: int) -> None:
        for _ in range(200):
            try:
                with hold(tmp_path / "run", RUN):
                    inside.append(number)
                    counts.append(len(inside))
                    inside.pop()
            except Error:
                refused.append(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(counts) == 1 and len(counts) + len(refused) == 800
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
