"""The kinds of folders that commands write, and the names of the files in them."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nq.files import TEMPORARY

MARK = ".nq-folder.json"
_SHARD = r"windows(?:-\d+)?-\d{5}-of-\d{5}\.tfrecord"
_PREPARED = rf"COMPLETED|manifest\.json|dead_letters\.jsonl|examples\.npy|{_SHARD}"
_OLD_PART = r"(?:again|windows(?:-\d{5}-of-\d{5})?)-\d{12}"
_SCORES = rf"(?:request|times)\.json|(?:part-\d{{6,}}-\d{{9,}}|{_OLD_PART})\.npz"
_UNFINISHED = r"\.unfinished-[a-z0-9_]+"
_PARTS = r"progress|workers\.(?:log|pid)|groups-\d{5}-of-\d{5}"
_BEAM = r"beam-temp-(?:windows|groups)[^/]*"


@dataclass(frozen=True)
class Kind:
    """A kind of folder that commands write.

    Args:
        name: as the mark has it.
        what: the folder in messages.
        lock: name of the file that is locked while a command writes to the folder.
        holder: the one who holds the lock, in messages.
        files: regular expression of the files that commands write, relative to the folder.
        folders: regular expression of the folders in it.
        signs: alternatives by which a folder of earlier versions is known: files, by glob, each
            with the keys that it must have as a JSON object, or none for a file of any content.
    """

    name: str
    what: str
    lock: str
    holder: str
    files: str
    folders: str = ""
    signs: tuple[Mapping[str, tuple[str, ...]], ...] = ()

    def is_file(self, name: str) -> bool:
        """Returns whether a command writes a file of this name, relative to the folder.

        >>> RUN.is_file("scores/part-000000-000000001.npz"), RUN.is_file("scores/mine.npz")
        (True, False)
        """
        return bool(re.fullmatch(self.files, name.removesuffix(TEMPORARY)))

    def is_folder(self, name: str) -> bool:
        """Returns whether a command makes a folder of this name, relative to the folder."""
        return bool(self.folders and re.fullmatch(self.folders, name))


RUN = Kind(
    name="run",
    what="a run of nq answer",
    lock=".nq-run.lock",
    holder="another run",
    files=r"(?:predictions|metrics|job|squad)\.json|dead_letters\.jsonl|kaggle\.csv|nbest\.jsonl"
    rf"|errors\.html|report\.html|report-data/\d{{5}}\.js|[0-9a-f]{{12}}\.mlflow_run"
    rf"|(?:results|scores)/(?:{_SCORES})|{_UNFINISHED}/.+",
    folders=rf"results|scores|report-data|{_UNFINISHED}(?:/.+)?",
    signs=(
        {"job.json": ("job", "request")},
        {"results/request.json": ("profile", "weights", "windows")},
        {".nq-run.lock": (), "windows-*/.nq-preprocess.lock": ()},
    ),
)
WINDOWS = Kind(
    name="windows",
    what="prepared windows",
    lock=".nq-preprocess.lock",
    holder="another job",
    files=rf"{_PREPARED}|{_UNFINISHED}/(?:{_PREPARED}|{_PARTS}|{_BEAM}/.+)",
    folders=rf"{_UNFINISHED}(?:/{_BEAM}(?:/.+)?)?",
    signs=({"manifest.json": ("request", "counts", "shards")}, {".nq-preprocess.lock": ()}),
)
TRAINING = Kind(
    name="training",
    what="a training of nq train",
    lock=".nq-train.lock",
    holder="another training",
    files=r"(?:config|nq|tokenizer|tokenizer_config|vocab)\.json|model\.safetensors|README\.md"
    r"|vocab(?:-nq)?\.txt|merges\.txt|(?:spiece|sentencepiece(?:\.bpe)?)\.model"
    r"|training/(?:training_state\.json|best_weights\.npz|\d+-training_state\.npz|[0-9a-f]{12}\.mlflow_run)"
    r"|training/teacher/(?:request\.json|part-\d{6,}\.npz)",
    folders="training|training/teacher",
    signs=(
        {"training/training_state.json": ("settings", "file", "step")},
        {"training/windows/manifest.json": ("request", "counts", "shards")},
        {"training/windows/.nq-preprocess.lock": ()},
    ),
)
CONVERSION = Kind(
    name="conversion",
    what="an unfinished conversion",
    lock=".nq-convert.lock",
    holder="another conversion",
    files=r"model/.+",
    folders=r"model(?:/.+)?",
)
KINDS = {kind.name: kind for kind in (RUN, WINDOWS, TRAINING, CONVERSION)}


def own_paths(folder: Path, kind: Kind, within: str = "") -> Iterator[Path]:
    """Yields the paths in a folder that commands write; what is in a folder comes before it.

    Args:
        folder: the folder; it need not exist.
        kind: its kind.
        within: the part to read, relative to the folder and with a slash at its end.
    """
    with contextlib.suppress(FileNotFoundError):
        for path in sorted((folder / within).iterdir()):
            relative = f"{within}{path.name}"
            if kind.is_folder(relative) and path.is_dir() and not (within and path.is_symlink()):
                yield from own_paths(folder, kind, f"{relative}/")
                yield path
            elif kind.is_file(relative) or kind.is_folder(relative):
                yield path


def size(folder: Path, kind: Kind) -> int:
    """Returns the bytes of the files that commands wrote into a folder."""
    return sum(path.lstat().st_size for path in own_paths(folder, kind) if not path.is_dir())


def remove(paths: Iterable[Path]) -> int:
    """Removes files, and folders that are empty; returns the bytes of the files."""
    freed = 0
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(OSError):  # it has files of others
                path.rmdir()
            continue
        with contextlib.suppress(FileNotFoundError):
            size = path.lstat().st_size
            path.unlink()
            freed += size
    return freed


def kind_of(folder: Path) -> Kind | None:
    """Returns the kind of a folder by its mark or, in earlier versions, by its files."""
    marked = KINDS.get(mark_of(folder))
    return marked or next((kind for kind in KINDS.values() if has_sign(folder, kind)), None)


def mark_of(folder: Path) -> str:
    """Returns the name of the kind in a folder's mark; empty if it has none, or a damaged one."""
    return str(_read_json(folder / MARK).get("kind", ""))


def has_sign(folder: Path, kind: Kind) -> bool:
    """Returns whether a folder has the files of a kind by which earlier versions are known."""
    return any(
        all(_has_file(folder, pattern, keys) for pattern, keys in sign.items())
        for sign in kind.signs
    )


def _has_file(folder: Path, pattern: str, keys: tuple[str, ...]) -> bool:
    try:
        return any(
            path.is_file() and (not keys or _read_json(path).keys() >= set(keys))
            for path in folder.glob(pattern)
        )
    except FileNotFoundError:  # another command has removed the folder meanwhile
        return False


def _read_json(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file; empty if there is none or it is damaged."""
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}
