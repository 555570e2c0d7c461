"""Folders as tests see them: their content, and another process that holds one."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path

from nq import storage
from nq.storage import Kind
from tests.support.child_processes import first_line, started

HOLDS = (
    "import pathlib, sys; from nq import storage\n"
    "with storage.hold(pathlib.Path(sys.argv[1]), storage.Kind(*sys.argv[2:])):\n"
    "    print(flush=True); input()"
)


def tree(folder: Path) -> dict[str, bytes | str | None]:
    """Returns every path below a folder, with the content of files and the targets of links."""
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else None
        for path in folder.rglob("*")
    }


def write(path: Path, text: str = "mine") -> Path:
    """Writes a file and makes its folder; returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def flip(path: Path, place: int) -> None:
    """Changes a bit of the byte at a place of a file; negative ones count from its end."""
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)


def of_earlier_version(path: Path, **values: object) -> None:
    """Writes a JSON object of ours, with other ``values``, as a version without formats did."""
    content = storage.read_json(path) | values
    write(path, json.dumps({**content, "sha256": storage.digest_json(content)}))


@contextmanager
def held(folder: Path, kind: Kind) -> Iterator[subprocess.Popen[str]]:
    """Holds a folder in another process, which is killed in the end."""
    with started("-c", HOLDS, folder.absolute(), *astuple(kind)) as process:
        assert first_line(process) == ""
        yield process
