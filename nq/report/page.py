"""Writes the page of a run: one file, or a file and parts with details beside it.

Text of the data reaches the page as JSON, in which no character can end a script, and the script
shows it as text only. The template escapes everything else.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from nq.evaluation.evaluate import gold_labels
from nq.evaluation.gate import Counts, Gate, question_counts, relative_loss
from nq.evaluation.nq_eval import Decision, decisions_of_one
from nq.report.analysis import NOT_STATED, Analysis, analyse
from nq.report.charts import HEIGHT, UNIT, axis_of, curve, format_seconds, phases
from nq.report.judgments import KINDS, MEANING, Case, Stage
from nq.report.questions import Question, entries
from nq.report.tables import COUNTS, loss, notes, number
from nq.report.traits import TRAITS
from nq.storage import atomic_write
from nq.text import format_bytes

MAX_PAGE_BYTES = 7 << 20
"""Bytes of details that a page holds itself."""
PART_BYTES = 3 << 20
MAX_MORE_CHARS, MIN_MORE_CHARS = 8000, 1500
"""Characters of a question's page that are shown besides the blocks with answers."""
PART = re.compile(r"\d{5}\.js")
_ESCAPES = {
    character.encode(): f"\\u{ord(character):04x}".encode() for character in "<>&\u2028\u2029"
}


@dataclass(frozen=True)
class RunView:
    """What the page shows of a run besides its questions.

    ``metrics`` and ``other`` are the ``metrics.json`` of the run and of the run that it is compared
    with; a loss can be told at ``stages``; ``problems`` are sentences about what is missing.
    """

    description: Mapping[str, str]
    metrics: Mapping[str, Any]
    stages: Sequence[Stage]
    problems: Sequence[str]
    thresholds: Mapping[str, float]
    other: Mapping[str, Any] | None = None
    max_loss: float | None = None


@dataclass(frozen=True)
class Report:
    """A written report.

    ``paths`` are the page, and the folder of its parts if there are any. Without gold there is no
    ``analysis`` and no ``gate``, without another run no ``changed`` and no ``gate``.
    """

    paths: tuple[Path, ...]
    questions: int
    analysis: Analysis | None
    changed: int | None
    gate: Gate | None
    problems: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "page": str(self.paths[0]),
            "questions": self.questions,
            **({} if self.changed is None else {"changed": self.changed}),
            **({"gate": self.gate.to_dict()} if self.gate else {}),
            "problems": self.problems,
            "analysis": self.analysis.to_dict() if self.analysis else None,
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
    """Writes the page of a run of so many questions one by one; details do not stay in memory."""

    def __init__(self, path: Path, n_questions: int) -> None:
        self.path, self.folder = path, parts_folder(path)
        self._traits = {name: dict.fromkeys(values) for name, values in TRAITS.items()}
        share = MAX_PAGE_BYTES // 2 // max(n_questions, 1)
        self._more_chars = min(MAX_MORE_CHARS, max(MIN_MORE_CHARS, share))
        self._rows: list[bytes] = []
        self._details: list[bytes] = []
        self._bytes = 0
        self._parts: list[int] = []
        self._cases: list[Case] = []
        self._decisions: list[dict[str, list[Decision]]] = [{k: [] for k in KINDS} for _ in "12"]
        self._counts: tuple[list[Counts], list[Counts]] = [], []
        self._changed = self._without_gold = 0

    def add(self, question: Question) -> None:
        gold = gold_labels(question.example) if question.example else []
        labels = [question.label, *([question.other] if question.other else [])]
        decisions = [decisions_of_one(gold, label) if gold else None for label in labels]
        for i, both in enumerate(decisions):
            if both:
                for kind, decision in zip(KINDS, both, strict=True):
                    self._decisions[i][kind].append(decision)
                self._counts[i].extend(question_counts({0: gold}, {0: labels[i]}))
        if question.case:
            self._cases.append(question.case)
        self._without_gold += question.example is not None and not gold
        self._changed += question.changed
        indices = []
        for name, values in self._traits.items():
            value = question.case.traits.get(name, NOT_STATED) if question.case else ""
            values.setdefault(value)
            indices.append(list(values).index(value))
        entry = entries(question, decisions[0], decisions[-1], indices, self._more_chars)
        row, details = map(script_json, entry)
        self._rows.append(row)
        self._details.append(details)
        self._bytes += len(details)
        while self._bytes > (PART_BYTES if self._parts else MAX_PAGE_BYTES):
            self._write_part()

    def _write_part(self) -> None:
        """Writes the first details to the next part."""
        size = count = 0
        while count < len(self._details) and (size < PART_BYTES or not count):
            size += len(self._details[count])
            count += 1
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path.unlink(missing_ok=True)  # the page of an earlier report would show the new parts
        number = len(self._parts)
        with atomic_write(self.folder / f"{number:05}.js") as file:
            file.write(b"nqPart(%d,[%s]);\n" % (number, b",\n".join(self._details[:count])))
        del self._details[:count]
        self._bytes -= size
        self._parts.append(count)

    def write(self, run: RunView) -> Report:
        if self._parts and self._details:
            self._write_part()
        analysis = analyse(self._cases, self._without_gold, run.stages) if self._cases else None
        changed = None if run.other is None else self._changed
        problems, gate = list(run.problems), None
        if run.other is not None and self._cases:
            try:
                gate = relative_loss(*self._counts, max_loss=run.max_loss)
            except ValueError as error:
                problems.append(str(error))
        data = {
            "traits": {name: list(values) for name, values in self._traits.items()},
            "parts": self._parts,
            "folder": quote(self.folder.name),
            "compared": changed is not None,
            "scored": analysis is not None,
            "outcomes": COUNTS,
        }
        scripts = {
            "data": script_json(data),
            "rows": b"[" + b",\n".join(self._rows) + b"]",
            "details": b"[" + b",\n".join(self._details) + b"]",
        }
        html = _render(
            scripts,
            has_parts=bool(self._parts),
            run=run,
            analysis=analysis,
            changed=changed,
            n_questions=len(self._rows),
            gate=gate,
            problems=problems,
            curves=[{k: curve(ds) for k, ds in of_run.items()} for of_run in self._decisions],
        )
        remove_parts(self.folder, len(self._parts))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(self.path) as file:
            file.write(html.encode("utf-8", "replace"))
        paths = self.path, *([self.folder] if self._parts else [])
        return Report(paths, len(self._rows), analysis, changed, gate, tuple(problems))


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


def _render(scripts: Mapping[str, bytes], has_parts: bool, curves: Any, **view: Any) -> str:
    """Returns the page, whose policy lets it run its own script and load only its parts.

    ``scripts`` has escaped JSON; ``curves`` are of this run and of the other one, by kind.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    loader = PackageLoader("nq.report")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.globals |= {"number": number, "seconds": format_seconds, "size": format_bytes}
    environment.globals |= {
        "loss": loss,
        "notes": notes,
        "phases": phases,
        "unit": UNIT,
        "y": HEIGHT,
    }
    code, style = (loader.get_source(environment, f"report.{kind}")[0] for kind in ("js", "css"))
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    files = " 'self' file:" if has_parts else ""
    return environment.get_template("report.html").render(
        **view,
        curves=curves,
        x=axis_of(one for of_run in curves for one in of_run.values()),
        kinds=KINDS,
        counts=COUNTS,
        meanings=MEANING,
        policy=f"default-src 'none'; script-src 'sha256-{digest}'{files}; "
        "style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
        code=Markup(code),
        style=Markup(style),
        scripts={name: Markup(json.decode()) for name, json in scripts.items()},
    )
