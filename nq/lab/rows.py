"""Profiles, models or runs beside each other: their rows, and the table of them."""

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nq.runs.measure import MIB, prediction_s
from nq.text import counted, grid, truncate, visible

BASELINE = "baseline"
WIDTH = 80
DECISIONS = CHOSEN, SHIPPED, FITTED = "chosen", "shipped", "fitted"
"""By which decisions models are judged (``nq.lab.models.judged_answers``)."""
FIRST_START = ("load_s", "compile_s", "warmup_s")
SECONDS = {"pre- dict s": "predict_s", "pre- pare s": "prepare_s"}
"""Columns of runs; words of a head stand below each other."""
PARTS = re.compile(r"[^ +/_-]*[ +/_-]?")
"""The parts of a label, after each of which a line can end."""


@dataclass(frozen=True)
class Row:
    """The measurements of a profile and a model, or of a run; ``None`` where there are none.

    Args:
        windows_per_s: the speed of ``nq answer``: the median of the rounds, of which ``low`` is the
            slowest and ``high`` the fastest.
        times_baseline: this speed divided by that of baseline, the median of the rounds.
        predict_s: seconds that all windows take at this speed.
        first_start_s: seconds until then in a new process: loading, compiling, and what the first
            batches take longer than later ones.
        memory_mb: peak resident memory of the process and its descendants in MiB.
        micro_f1: at the thresholds in use; ``None`` without gold.
        loss: relative loss of micro-F1 (of the F1 of words where gold is only text) against
            baseline, and the lower end of its interval (``nq.evaluation.gate``); ``None`` without
            gold.
        changed: how many answers differ from those of the profile, model or run ``against``.
        error: why the profile could not be measured; empty if it was.
        busy: in how many of the rounds that count other programs took much of the processor.
        ratios: the speed divided by that of baseline in each of them.
        name: of a run.
        prepare_s: seconds of waiting for windows, of a run.
        batch_size, max_seq_length: windows in a batch and pieces in a window, if not the default.
        questions_per_s: the speed where not all rows have the same windows.
        model: its name, where several are compared.
        quality: metrics of the answers by name, such as ``long_f1``; ``exact_match`` and
            ``squad_f1`` where gold is text.
        fitted: those of the answers of decisions that were fitted to the other half of the
            questions.
        decision: by which the model is judged: ``SHIPPED`` or ``FITTED``.
        judged: metrics of the answers of that decision.
        behind: how much lower its ``f1`` is than the best of all rows, with the ends of its
            interval. ``None`` without gold.
        size_mb: of the model's files in MiB.
        max_drift: largest difference of a logit from that of ``against``; ``None`` without scores.
        machine: on which a run was.
        not_comparable: why the speed of a run is not comparable with that of others; else empty.
    """

    profile: str
    windows_per_s: float | None = None
    low: float | None = None
    high: float | None = None
    times_baseline: float | None = None
    predict_s: float | None = None
    first_start_s: float | None = None
    memory_mb: float | None = None
    micro_f1: float | None = None
    changed: int | None = None
    loss: tuple[float, float] | None = None
    against: str = BASELINE
    error: str = ""
    name: str = ""
    prepare_s: float | None = None
    busy: int = 0
    ratios: tuple[float, ...] = ()
    batch_size: int | None = None
    max_seq_length: int | None = None
    questions_per_s: float | None = None
    model: str = ""
    quality: Mapping[str, float] = field(default_factory=dict, hash=False)
    fitted: Mapping[str, float] = field(default_factory=dict, hash=False)
    decision: str = ""
    judged: Mapping[str, float] = field(default_factory=dict, hash=False)
    behind: tuple[float, float, float] | None = None
    size_mb: float | None = None
    max_drift: float | None = None
    machine: str = ""
    not_comparable: str = ""

    @property
    def label(self) -> str:
        """What tells the row from the others: of a row of one model without sizes, the profile."""
        batch = f"batch of {self.batch_size}" if self.batch_size else ""
        pieces = f"{self.max_seq_length} pieces" if self.max_seq_length else ""
        return " · ".join(filter(None, (self.model, self.profile, self.name, batch, pieces)))

    @property
    def f1(self) -> float | None:
        """The F1 by which models are compared: micro-F1, that of words where gold is only text."""
        quality = {"micro_f1": self.micro_f1} | {**(self.judged or self.quality)}
        return quality["micro_f1"] if quality["micro_f1"] is not None else quality.get("squad_f1")

    @property
    def note(self) -> str:
        """What stands below the row: why it failed, or that the speed may not be right."""
        rounds = counted(self.busy, "round")
        busy = f"busy: other programs took much of the processor in {rounds}" if self.busy else ""
        why = f"speed not comparable: {self.not_comparable}" if self.not_comparable else ""
        return self.error or busy or why


def row(result: Mapping[str, Any], **fields: Any) -> Row:
    """Returns the row of a run from its ``metrics.json`` and further fields."""
    time = result["time"]
    verdict, _, why = result.get("speed_comparable", "yes").partition(": ")
    values = {
        "windows_per_s": result["windows_per_s"],
        "predict_s": prediction_s(time) or None,
        "first_start_s": sum(time.get(name, 0.0) for name in FIRST_START) or None,
        "memory_mb": result["peak_memory_bytes"] / MIB or None,
        "micro_f1": result["metrics"].get("micro_f1"),
        "prepare_s": time.get("preprocess_wait_s"),
        "machine": result["machine"],
        "not_comparable": why if verdict == "no" else "",
    }
    return Row(result["profile"], **values | fields)


def figure(value: float | None, digits: int | None = None) -> str:
    """Returns a figure with ``digits`` digits after the point, or about three in all.

    >>> figure(8.809), figure(67.3), figure(122.2), figure(0.46839, 4), figure(None)
    ('8.81', '67.3', '122', '0.4684', '')
    """
    if value is None or not math.isfinite(value):
        return ""
    if abs(value) > 1e7:
        return f"{value:.0e}"
    return f"{value:.{(value < 100) + (value < 10) if digits is None else digits}f}"


QUALITY = {
    "micro F1": "micro_f1",
    "long F1": "long_f1",
    "short F1": "short_f1",
    "exact match": "exact_match",
    "F1 of words": "squad_f1",
}
"""Columns of models on a page; with gold of both kinds, all of them."""
NARROW = ("micro_f1", "squad_f1")


def cells(rows: Sequence[Row], is_narrow: bool = False) -> tuple[list[str], list[list[str]]]:
    """Returns the heads of the columns that have a figure, and the texts of each row in them.

    A narrow table of models has only those that tell which to take.
    """
    others = {row.against for row in rows if row.changed is not None}
    other = others.pop() if len(others) == 1 else "others"
    if rows[0].name:
        other = {rows[0].label: "first", rows[-1].label: "last"}.get(other, other)
    seconds = SECONDS.items() if any(row.name for row in rows) else ()
    has_models = any(row.model for row in rows)

    def speed(row: Row) -> str:
        rounds = "" if row.low is None else f" ({figure(row.low)}-{figure(row.high)})"
        return "failed" if row.error else figure(row.windows_per_s) + rounds

    has_fitted = any(row.fitted for row in rows)
    kinds = {"": [row.judged or row.quality for row in rows]}
    if has_fitted and not is_narrow:
        kinds[" shipped"] = [row.quality for row in rows]
        kinds[" fitted"] = [row.fitted for row in rows]
    qualities = {
        head + kind: [figure(metrics.get(name), 3) for metrics in several]
        for head, name in QUALITY.items()
        if name in NARROW or not is_narrow
        for kind, several in kinds.items()
    }
    columns = {
        "model" if has_models else "profile": [visible(row.label) for row in rows],
        "windows/s": [] if has_models and is_narrow else [*map(speed, rows)],
        "ques- tions /s": [figure(row.questions_per_s) for row in rows],
        "times base- line": [figure(row.times_baseline, 2) for row in rows],
        "first start s": [figure(row.first_start_s) for row in rows],
        **{head: [figure(getattr(row, name)) for row in rows] for head, name in seconds},
        "peak MB": [figure(row.memory_mb, 0) for row in rows],
        "disk MB": [figure(row.size_mb, 0) for row in rows],
        "micro F1": [figure(row.micro_f1, 4) for row in rows],
        **(qualities if has_models else {}),
        "decision": [row.decision for row in rows] if has_fitted else [],
        f"changed from {truncate(visible(other), 8)}": [figure(row.changed, 0) for row in rows],
        "max drift": ["" if row.max_drift is None else f"{row.max_drift:.1g}" for row in rows],
    }
    filled = {head: texts for head, texts in columns.items() if any(texts)}
    return list(filled), [list(texts) for texts in zip(*filled.values(), strict=True)]


def comparison_table(rows: Sequence[Row]) -> str:
    """Returns the table as text of at most 80 columns; a note stands below its row."""
    heads, body = cells(rows, is_narrow=True)
    words = [head.split() for head in heads]
    height = max(map(len, words))
    lines = [*zip(*([""] * (height - len(parts)) + parts for parts in words), strict=True)]
    columns = [*zip(*lines, *body, strict=True)][1:]
    width = WIDTH - sum(2 + max(map(len, column)) for column in columns)
    notes = dict[int, list[str]]()
    for row, (label, *figures) in zip(rows, body, strict=True):
        first, *others = _wrapped(label, width)
        lines += [(first, *figures), *((part, *[""] * len(figures)) for part in others)]
        note = textwrap.wrap(visible(row.note), WIDTH - 2)
        notes[len(lines) - 1] = [f"  {part}" for part in note]
    aligned = grid(lines[0], lines[1:])
    texts = (text for i, line in enumerate(aligned) for text in (line, *notes.get(i, ())))
    return "\n".join(map(str.rstrip, texts))


def _wrapped(label: str, width: int) -> list[str]:
    """Returns the lines of a label.

    >>> _wrapped("mixed+xla · runs/20261128-first", 16)
    ['mixed+xla ·', 'runs/20261128-', 'first']
    """
    lines = [""]
    for part in PARTS.findall(label):
        for piece in (part[start : start + width] for start in range(0, len(part), width)):
            if len(lines[-1]) + len(piece.rstrip()) > width:
                lines.append("")
            lines[-1] += piece
    return [line.rstrip() for line in lines]
