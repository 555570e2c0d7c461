"""Writes the page: one file, or a file and parts with the details of many questions beside it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from nq.report.analysis import NOT_STATED
from nq.report.entries import entries
from nq.report.questions import Question
from nq.storage import atomic_write

MAX_PAGE_BYTES = 7 << 20
"""Bytes of details that a page holds itself."""
PART_BYTES = 3 << 20
MAX_MORE_CHARS, MIN_MORE_CHARS = 8000, 1500
"""Characters of a question's page that are shown besides the blocks with answers."""
PART = re.compile(r"\d{5}\.js")
TEMPLATE, SCRIPT, STYLE = "report.html", "report.js", "report.css"
_ESCAPES = {
    character.encode(): f"\\u{ord(character):04x}".encode() for character in "<>&\u2028\u2029"
}


def script_json(value: Any) -> bytes:
    """Returns JSON that can stand in a script: nothing in it ends the script or begins a comment.

    >>> script_json("</script><!--")
    b'"\\\\u003c/script\\\\u003e\\\\u003c!--"'
    """
    text = orjson.dumps(value)
    for character, escape in _ESCAPES.items():
        text = text.replace(character, escape)
    return text


class PageWriter:
    """Writes the page of a run question by question; details do not stay in memory.

    Args:
        path: the page.
        n_questions: how many there will be, at most.
        traits: the values of each trait by name, in the order of display; new values are added.
    """

    def __init__(self, path: Path, n_questions: int, traits: Mapping[str, Sequence[str]]) -> None:
        self.path, self.folder = path, parts_folder(path)
        self._traits = {name: dict.fromkeys(values) for name, values in traits.items()}
        share = MAX_PAGE_BYTES // 2 // max(n_questions, 1)
        self._more_chars = min(MAX_MORE_CHARS, max(MIN_MORE_CHARS, share))
        self._rows: list[bytes] = []
        self._details: list[bytes] = []
        self._bytes = 0
        self._parts: list[int] = []

    def add(self, question: Question) -> None:
        """Adds a question."""
        traits = question.case.traits if question.case else {}
        indices = []
        for name, values in self._traits.items():
            value = traits.get(name, NOT_STATED if question.case else "")
            values.setdefault(value)
            indices.append(list(values).index(value))
        row, details = map(script_json, entries(question, indices, self._more_chars))
        self._rows.append(row)
        self._details.append(details)
        self._bytes += len(details)
        limit = PART_BYTES if self._parts else MAX_PAGE_BYTES
        while self._bytes > limit:
            self._write_part()
            limit = PART_BYTES

    def _write_part(self) -> None:
        """Writes the first details to the next part."""
        size = count = 0
        while count < len(self._details) and (size < PART_BYTES or not count):
            size += len(self._details[count])
            count += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path.unlink(missing_ok=True)  # an earlier page would show the new parts
        number = len(self._parts)
        with atomic_write(self.folder / f"{number:05}.js") as file:
            file.write(b"nqPart(%d,[%s]);\n" % (number, b",\n".join(self._details[:count])))
        del self._details[:count]
        self._bytes -= size
        self._parts.append(count)

    def write(self, view: Mapping[str, Any]) -> list[Path]:
        """Writes the page; returns its path, and the folder of the parts if there are any.

        Args:
            view: what the template shows besides the questions.
        """
        if self._parts and self._details:
            self._write_part()
        data = {
            "traits": {name: list(values) for name, values in self._traits.items()},
            "parts": self._parts,
            "folder": quote(self.folder.name),
            **view["script"],
        }
        scripts = {
            "data": script_json(data),
            "rows": b"[" + b",\n".join(self._rows) + b"]",
            "details": b"[" + b",\n".join(self._details) + b"]",
        }
        remove_parts(self.folder, len(self._parts))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.path) as file:
            file.write(render(view, scripts, bool(self._parts)).encode("utf-8", "replace"))
        return [self.path, *([self.folder] if self._parts else [])]


def parts_folder(path: Path) -> Path:
    """Returns the folder of the parts of a page.

    >>> parts_folder(Path("runs/dev/report.html")).as_posix()
    'runs/dev/report-data'
    """
    return path.with_name(f"{path.stem}-data")


def remove_parts(folder: Path, first: int = 0) -> None:
    """Removes the parts of an earlier page from a number on, and the folder if it is empty then."""
    if folder.is_dir():
        for part in folder.iterdir():
            if PART.fullmatch(part.name) and int(part.stem) >= first:
                part.unlink()
        with contextlib.suppress(OSError):
            folder.rmdir()


def render(view: Mapping[str, Any], scripts: Mapping[str, bytes], has_parts: bool) -> str:
    """Returns the page.

    Args:
        view: what the template shows.
        scripts: JSON for the script, escaped.
        has_parts: whether the page loads files beside it.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    loader = PackageLoader("nq.report")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    code, style = (loader.get_source(environment, name)[0] for name in (SCRIPT, STYLE))
    return environment.get_template(TEMPLATE).render(
        **view,
        policy=_policy(code, has_parts),
        code=Markup(code),
        style=Markup(style),
        scripts={name: Markup(json.decode()) for name, json in scripts.items()},
    )


def _policy(code: str, has_parts: bool) -> str:
    """Returns the policy that lets the page run its own script and load nothing else."""
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    files = " 'self' file:" if has_parts else ""
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'{files}; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )
