"""The tables of README.md and docs/: those of the code, and those of result files.

``SOURCES`` has the tables of the code by name. ``KINDS`` has a table for each kind of result; a
result file is ``experiments/results/NAME.json``, its kind the part of NAME before the first
underscore. Results of the kinds in ``BUNDLED`` are stale where other models ship now.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments import Values
from experiments.command import markdown
from nq.bundle import READER
from nq.errors import Error
from nq.model.model import Model
from nq.model.registry import DEFAULT
from nq.storage import digest_json

if TYPE_CHECKING:
    from experiments.study import Study

RESULTS = Path("experiments/results")
KEYS = ("command", "date", "machine", "versions", "result")
MODEL = "model"
"""One more key of a result of the kinds in ``BUNDLED``: the digests of ``shipped``."""
PARTS = ("long", "short")
EXCERPTS_AND_ARTICLES = {
    "nq-dev": "excerpts of at most 25 blocks",
    "nq-whole-dev": "whole Wikipedia articles",
}
"""Data of ``quality_odd`` in the first table of the README, and what they are in words."""
COMPARED = {"compare_20": ("such excerpts", 20), "compare_pages": ("whole pages", 10)}
"""Maps results of ``nq compare`` to the pages and the number of their questions."""

ResultFile = Values


def kind_of(name: str) -> str:
    """Returns the kind of a result by its name; an ``Error`` names the known ones."""
    kind = name.partition("_")[0]
    if kind not in KINDS:
        known = ", ".join((*SOURCES, *(f"{kind}_NAME" for kind in KINDS)))
        raise Error(f"unknown table {name!r}; known are {known}")
    return kind


def read_result(name: str, root: Path) -> ResultFile:
    """Returns a result file; an ``Error`` if it is missing or of an unknown kind."""
    kind_of(name)
    path = root / RESULTS / f"{name}.json"
    if not path.is_file():
        raise Error(
            f"{RESULTS}/{name}.json is missing: run python -m experiments.tables --record {name} "
            "-- COMMAND with the command that measures it"
        )
    values: ResultFile = json.loads(path.read_text(encoding="utf-8"))
    return values


def shipped(name: str, command: str) -> dict[str, str]:
    """Returns the digests of what a result depends on: weights and settings of bundled models.

    They are of the models that the option ``--model`` of the command names, else of the default
    ones. The result of a kind that is not in ``BUNDLED`` depends on nothing.
    """
    kind = kind_of(name)
    if kind not in BUNDLED:
        return {}
    words = shlex.split(command)
    named = words[words.index("--model") + 1] if "--model" in words else None
    model = Model.open(named or (READER if kind == "compression" else DEFAULT))
    settings: list[Any] = [part.windows.to_dict() for part in model.parts]
    if kind not in TIMES:
        settings.append(model.decision.to_dict())
    weights = "+".join(part.digest for part in model.parts)
    return {"weights": weights, "settings": digest_json(settings)}


def stale(root: Path) -> list[str]:
    """Returns a sentence on each committed result that was measured with other bundled models."""
    sentences = []
    for path in sorted((root / RESULTS).glob("*.json")):
        data = read_result(path.stem, root)
        now = shipped(path.stem, data["command"]).items()
        then = data.get(MODEL, {})
        if changed := [part for part, digest in now if then.get(part) != digest]:
            sentences.append(
                f"{RESULTS}/{path.name} is of {data['date']}, before a change of the bundled "
                f"models' {' and '.join(changed)}: run python -m experiments.tables --record "
                f"{path.stem} -- {data['command']}"
            )
    return sentences


def profiles(root: Path) -> str:
    """Returns the table of the optimizations of ``nq.inference.profile``."""
    from nq.inference.profile import BASELINE, BASELINE_HELP, OPTIMIZATIONS

    effects = {BASELINE: BASELINE_HELP, **{name: o.help for name, o in OPTIMIZATIONS.items()}}
    return markdown(("name", "effect"), *((f"`{name}`", text) for name, text in effects.items()))


def families(root: Path) -> str:
    """Returns the table of the encoder families of ``nq.model.families``."""
    from nq.model.families import FAMILIES

    rows = (
        (f"`{name}`", f"`{family.architecture}ForQuestionAnswering`")
        for name, family in FAMILIES.items()
    )
    return markdown(("`model_type`", "class in transformers"), *rows)


def limits(root: Path) -> str:
    """Returns the table of the limits of a record."""
    from nq.formats.fields import LIMITS, UNITS

    rows = ((unit, f"{getattr(LIMITS, name):,}") for name, unit in UNITS.items())
    return markdown(("of one record", "at most"), *rows)


def api(root: Path) -> str:
    """Returns the table of the public names of ``nq``, each with its docstring's first line."""
    import nq

    rows = []
    for name in nq.__all__:
        value = getattr(nq, name)
        text = (value.__doc__ or "").strip() if callable(value) else ""
        rows.append((f"`nq.{name}`", text.partition("\n")[0]))
    return markdown(("name", "purpose"), *rows)


def serve(root: Path) -> str:
    """Returns the table of the options of ``nq serve`` that are its own."""
    from nq.config import ServeConfig

    rows = (
        (f"`--{f.name.replace('_', '-')}`", f.metadata["help"], str(f.default or None))
        for f in dataclasses.fields(ServeConfig)
    )
    return markdown(("option", "effect", "default"), *rows)


def overview(root: Path) -> str:
    """Returns the first table of the README: the quality of the bundled models, and the speed.

    It is of several results, whose own tables in docs/ have their commands, dates and versions.
    """
    quality, pages = (read_result(name, root)["result"] for name in ("quality_odd", "match_pages"))
    compared = {name: read_result(name, root) for name in COMPARED}
    rows = {row["data"]: row for row in quality["rows"]}
    machines = dict.fromkeys(file["machine"].partition(",")[0] for file in compared.values())
    f1 = [
        (
            f"{rows[data]['examples']} questions about {what}: F1 of passages / short answers",
            " / ".join(f"{rows[data][f'{part}_f1']:.2f}" for part in PARTS),
        )
        for data, what in EXCERPTS_AND_ARTICLES.items()
    ]
    return markdown(
        ("quality and speed of the bundled models", f"measured on {', '.join(machines)}"),
        *f1,
        (f"{pages['questions']} questions about pages with tables and lists", _matches(pages)),
        *(speed(name, file["result"]) for name, file in compared.items()),
    )


def _matches(pages: ResultFile) -> str:
    return f"{pages['answered_in_short']} get a short answer, {pages['matched']} of them right"


def card(root: Path) -> str:
    """Returns the figures on the card of both models, which are those in docs/quality.md."""
    quality, pages = (read_result(name, root)["result"] for name in ("quality_odd", "match_pages"))
    whole = f"Of {pages['questions']} questions about whole pages {_matches(pages)}."
    return f"{table_of(quality, 'quality')}\n{whole}\n"


def card_small(root: Path) -> str:
    """Returns the figures on the card of the reader alone."""
    return table_of(read_result("quality_small", root)["result"], "quality")


def speed(name: str, result: ResultFile) -> tuple[str, str]:
    """Returns how fast the profile to take of ``nq compare`` is, in a result of this name."""
    (row,) = (row for row in result["rows"] if row["profile"] == result["take"])
    pages, n_questions = COMPARED[name]
    per_second = n_questions / row["predict_s"]
    return (
        f"questions about {pages} that `{row['profile']}` answers",
        f"{per_second:.2g} in a second, {row['times_baseline']:.1f} times `baseline`",
    )


def compare(result: ResultFile) -> str:
    """Returns the table of ``nq compare --json``, with the sentence that names a profile."""
    from nq.lab.rows import Row, cells

    heads, rows = cells([Row(**row) for row in result["rows"]])
    named = ((f"`{name}`", *figures) for name, *figures in rows)
    return f"{markdown([head.replace('- ', '') for head in heads], *named)}\n{result['reason']}\n"


def table_of(result: ResultFile, kind: str) -> str:
    """Returns the verdicts of a study, or the table that a command prints without ``--json``.

    ``experiments.tables --show`` has the rows of a study.
    """
    if kind in STUDIES:
        return study(kind).verdicts(result["rows"])
    return str(importlib.import_module(f"experiments.{TABLES[kind]}").table(result))


def study(kind: str) -> Study:
    """Returns the study that makes results of a kind; an ``Error`` if none does."""
    if kind not in STUDIES:
        raise Error(f"{kind} is no study; known are {', '.join(STUDIES)}")
    found: Study = importlib.import_module(STUDIES[kind]).STUDY
    return found


def scale_check(root: Path) -> str:
    """Returns the table of what was predicted beside what a cluster took, and where each was."""
    from experiments.scale.__main__ import check

    files = [read_result(name, root) for name in ("scale_dev", "cluster_dev")]
    costs, cluster = (f"on {file['date']} with {file['machine']}" for file in files)
    machines = f"Costs measured {costs}; cluster measured {cluster}."
    if files[0]["machine"] != files[1]["machine"]:
        machines += " These are two machines, so the error is mostly that of their speeds."
    return f"{check(*(file['result'] for file in files))}\n{machines}\n"


STUDIES = {
    "concurrency": "experiments.concurrency_report",
    "scaling": "experiments.scaling_report",
    "compression": "experiments.compression.report",
    "partition": "experiments.partition.report",
}
"""Maps each study to the module of its ``STUDY``."""
TABLES = {
    "cluster": "cluster_scaling",
    "decisions": "decisions",
    "peers": "peers.__main__",
    "match": "string_match",
    "quality": "quality",
    "reading": "reading",
    "rescoring": "rescoring",
    "scale": "scale.__main__",
    "serving": "serving.__main__",
    "vectors": "vectors",
}
"""Maps other kinds of results to the module that prints them."""
SOURCES: dict[str, Callable[[Path], str]] = {
    "profiles": profiles,
    "families": families,
    "limits": limits,
    "api": api,
    "overview": overview,
    "card": card,
    "card_small": card_small,
    "serve": serve,
    "scale_check": scale_check,
}
TIMES = ("cluster", "compression", "scale", "serving", "vectors")
"""Kinds of results that do not depend on the decision; compression fits one of its own."""
BUNDLED = ("compare", "decisions", "match", "quality", "reading", "rescoring", *TIMES)
"""Kinds of results that bundled models give; all others have random weights."""
KINDS: dict[str, Callable[[ResultFile], str]] = {
    **{kind: partial(table_of, kind=kind) for kind in (*STUDIES, *TABLES)},
    "compare": compare,
}
