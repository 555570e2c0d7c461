"""The result of a run: its files, counts, times and metrics, also as text and as HTML."""

import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from nq import storage
from nq.evaluation.answer_files import AnswerRow
from nq.evaluation.nq_eval import Verdict
from nq.evaluation.text_match import TOP
from nq.formats.input_files import shown
from nq.runs.folder import RUN
from nq.runs.measure import MIB, Measured, Totals, phases, prediction_s
from nq.storage import DEAD_LETTERS
from nq.text import counted, format_bytes, html_table, truncate, visible

MAX_SHOWN = 10  # rows in a notebook
RIGHT = None, Verdict.RIGHT, Verdict.NULL
MARKS = {None: "", Verdict.RIGHT: "right", Verdict.PASSAGE: "passage", Verdict.NULL: "null"}
MARKS |= {one: one.upper() for one in Verdict if one not in MARKS}
QUESTION_WIDTH, ANSWER_WIDTH, MARK_WIDTH = 57, 59, 11  # a mark with the blanks around it
MIN_WIDTH = 40
MAX_WIDTH = QUESTION_WIDTH + ANSWER_WIDTH + MARK_WIDTH
NO_ANSWER = "(no answer)"
NO_WORDS = "(no words)"
MAX_CHARS = 200  # of a text in HTML
_DETAIL = re.compile(r"'[^']*'|\"[^\"]*\"|-?\d+")


@dataclass(frozen=True, repr=False)
class Result:
    """The folder, counts, times and metrics of a run.

    Args:
        totals: what was computed.
        measured: times, memory and machine.
        without_gold: examples without annotations.
        text_only: examples that are scored as text alone, since no answer is in the page.
        metrics: of the official evaluation; empty without gold.
        verdicts: how many answers are right, passage, wrong, extra, missed and null
            (``nq.evaluation.evaluate.JudgedPrediction``); empty without gold.
        ended: when the run ended, in seconds since 1970.
        run_id: of the MLflow run.
        rows: the first rows of the table of answers.
        how_to_open: the command that opens the MLflow run.
        windows_bytes: of the windows that runs share.
        instances: processes that computed the windows; ``None`` if it was that of the run.
        threads: of each of them; ``None`` for those that TensorFlow and engines choose.
        model_uri: MLflow's URI of the model that the run has, if it was required.
        advice: which profile is faster here, or why the run has its own; or empty.
        beam: runner, name and ids of the job, number of workers and metrics of the pipeline, where
            a runner of Beam answered the questions. The time has then other phases,
            ``windows_per_s`` is the speed of the whole pipeline, memory that of this machine.
    """

    folder: Path
    profile: str
    totals: Totals
    measured: Measured
    examples: int
    answered: int
    without_gold: int
    text_only: int
    metrics: Mapping[str, float]
    verdicts: Mapping[str, int]
    ended: float
    run_id: str | None
    rows: tuple[AnswerRow, ...]
    windows_bytes: int
    instances: int | None
    threads: int | None
    beam: Mapping[str, Any] | None = None
    how_to_open: str | None = None
    model_uri: str | None = None
    advice: str = ""

    @property
    def windows_per_s(self) -> float:
        """The speed: all windows, pruned ones too, divided by the seconds of prediction.

        Windows of the reader of two models do not count, but its time does.
        """
        seconds = prediction_s(self.measured.time)
        return self.totals.windows / seconds if seconds > 0 else 0.0

    @property
    def run_bytes(self) -> int:
        """Bytes of the files that the folder has now."""
        return storage.size(self.folder, RUN)

    @property
    def skipped(self) -> Path:
        """The file of the bad records."""
        return self.folder / DEAD_LETTERS

    @property
    def not_comparable(self) -> tuple[str, ...]:
        """Why the speed cannot be compared with that of other runs."""
        return (f"answered by {self.beam['runner']}",) if self.beam else self.measured.reasons

    @property
    def speed_comparable(self) -> str:
        """``yes``, or ``no`` with the reasons."""
        resumed = ["resumed"] if self.totals.resumed_windows else []
        reasons = [*resumed, *self.not_comparable]
        return f"no: {', '.join(reasons)}" if reasons else "yes"

    def to_dict(self) -> dict[str, Any]:
        """Returns what ``metrics.json`` contains, as JSON values."""
        own = ("examples", "answered", "without_gold", "text_only", "metrics", "verdicts", "run_id")
        started_at, ended_at = (
            datetime.fromtimestamp(t, UTC).isoformat(timespec="milliseconds")
            for t in (self.measured.started, self.ended)
        )
        return {
            "profile": self.profile,
            "output": shown(str(self.folder)),
            **self.totals.to_dict(),
            **{name: getattr(self, name) for name in own},
            "windows_per_s": self.windows_per_s,
            "time": self.measured.time,
            "peak_memory_bytes": self.measured.peak_memory_bytes,
            "machine": self.measured.machine,
            "instances": self.instances,
            "threads": self.threads,
            "started_at": started_at,
            "ended_at": ended_at,
            "speed_comparable": self.speed_comparable,
            **({} if self.beam is None else {"beam": self.beam}),
        }

    def __repr__(self) -> str:
        f1 = f"micro-F1 {self.metrics['micro_f1']:.3f}, " if "micro_f1" in self.metrics else ""
        counts = f"{counted(self.examples, 'question')}, {self.answered} answered"
        speed = f"{self.windows_per_s:.1f} windows/s, profile {self.profile}"
        return f"Result({str(self.folder)!r}: {counts}, {f1}{speed})"

    def __str__(self) -> str:
        """Returns the counts, the table of answers and the figures, which ``nq answer`` prints."""
        table = ["", *answer_table(self.rows, self.examples), ""] if self.rows else []
        lines = summary(self)
        counts = 2 if self.verdicts else 1
        return "\n".join([*lines[:counts], *table, *lines[counts:]])

    def _repr_html_(self) -> str:
        """Returns the summary and the first answers, as notebooks show them."""
        rows = self.rows[:MAX_SHOWN]
        texts = list[list[str]]()
        heads = f"{len(rows)} of {counted(self.examples, 'question')}", "answer", "", "expected"
        for row in rows:
            right = "" if row.verdict in RIGHT else _expected(row)
            cells = (row.question, row.answer or NO_ANSWER, MARKS[row.verdict], right)
            texts.append([truncate(visible(text), MAX_CHARS) for text in cells])
        return html_table(summary(self), heads, texts)


def summary(result: Result) -> list[str]:
    """Returns the summary in at most six lines, and one line per unusual condition."""
    totals = result.totals
    measured = result.measured
    skipped = f"{counted(totals.dead_letters, 'record')} skipped, " if totals.dead_letters else ""
    lines = [
        f"{counted(result.examples, 'question')}, {result.answered} answered, {skipped}"
        f"{counted(totals.windows, 'window')} (profile {result.profile}, {totals.precision} on "
        f"{totals.device})"
    ]
    lines += _scores(result)
    seconds, _ = phases(measured.time)
    shown = ", ".join(f"{name} {value:.1f}" for name, value in seconds.items() if value >= 0.05)
    lines.append(
        f"{measured.time['total_s']:.1f} s ({shown}); {result.windows_per_s:.1f} windows/s; peak "
        f"memory {measured.peak_memory_bytes / MIB:.0f} MiB"
    )
    lines += _notes(result)
    lines += dead_letter_lines(result.skipped)
    disk = f"{format_bytes(result.run_bytes)}, and {format_bytes(result.windows_bytes)} of windows"
    lines.append(visible(f"written to {result.folder} ({disk}, which nq clean removes)"))
    return lines + ([f"see the run: {result.how_to_open}"] if result.how_to_open else [])


def _notes(result: Result) -> list[str]:
    lines = list[str]()
    totals = result.totals
    if result.threads is not None:
        instances = f"{counted(result.instances, 'instance')} of " if result.instances else ""
        lines.append(f"computed by {instances}{counted(result.threads, 'thread')}")
    if beam := result.beam:
        job_id = f", id {beam['job_id']}" if beam["job_id"] else ""
        lines.append(visible(f"answered by {beam['runner']}: job {beam['job_name']}{job_id}"))
    lines += unread_lines(totals.truncated_pages, totals.unread_blocks)
    if "prune" in result.profile.split("+"):  # windows of repeated records are not computed either
        lines.append(
            f"{totals.counters.computed_windows} of the windows were computed, the others pruned"
        )
    if totals.reader_windows:
        windows = counted(totals.reader_windows, "window")
        lines.append(f"computed by the reader: {windows}")
    if totals.counters.float32_windows:
        lines.append(
            f"computed again in float32: {counted(totals.counters.float32_windows, 'window')}"
        )
    if totals.rescored:
        examples = counted(totals.rescored, "example")
        lines.append(f"rescored in float32: {examples} with a close decision")
    if totals.resumed_windows:
        scored = counted(totals.resumed_windows, "window")
        lines.append(f"resumed: an interrupted run scored {scored}; the seconds are of both")
    if result.not_comparable:
        reasons = ", ".join(result.not_comparable)
        lines.append(f"the speed is not comparable with that of other runs: {reasons}")
    return lines + ([visible(result.advice)] if result.advice else [])


def _scores(result: Result) -> list[str]:
    lines = []
    m = result.metrics
    if result.verdicts:
        lines.append(", ".join(f"{count} {name}" for name, count in result.verdicts.items()))
    if "squad_f1" in m:
        rule = "NQ-open" if "retrieval_all" in m else "SQuAD"
        questions = counted(int(m["squad_n"]), "question")
        lines.append(
            f"exact match {m['squad_exact_match']:.3f}   F1 of words {m['squad_f1']:.3f}   "
            f"({questions} with answers as text, by {rule}'s definition)"
        )
    if "retrieval_all" in m:
        shares = ", ".join(f"top {k} {m[f'retrieval_top_{k}']:.3f}" for k in TOP)
        lines.append(
            f"answers retrieved {m['retrieval_all']:.3f} ({shares})   "
            f"exact match of these {m['retrieved_exact_match']:.3f}"
        )
    if "micro_f1" in m:
        lines.append(
            f"long F1 {m['long-answer-f1']:.3f} (best {m['long-best-threshold-f1']:.3f})   "
            f"short F1 {m['short-answer-f1']:.3f} (best {m['short-best-threshold-f1']:.3f})   "
            f"micro-F1 {m['micro_f1']:.3f} (best {m['micro_f1_best']:.3f})"
        )
    if m and result.without_gold:
        lines.append(f"not scored because they have no annotations: {result.without_gold}")
    if result.text_only:
        lines.append(f"scored as text alone, since no answer is in the page: {result.text_only}")
    if not m:
        lines.append("not scored: the data have no annotations")
    return lines


def answer_table(rows: Sequence[AnswerRow], examples: int) -> list[str]:
    """Returns a line per answer, with the expected one if it is wrong, and the number left out."""
    columns = shutil.get_terminal_size((MAX_WIDTH, 1)).columns
    width = max(MIN_WIDTH, min(columns, MAX_WIDTH)) - MARK_WIDTH
    left = width * QUESTION_WIDTH // (QUESTION_WIDTH + ANSWER_WIDTH)
    right = width - left
    lines = []
    for row in rows:
        question = f"{truncate(visible(row.question), left):<{left}}"
        answer = truncate(visible(row.answer or NO_ANSWER), right)
        lines.append(f"{question}  {MARKS[row.verdict]:<{MARK_WIDTH - 4}}  {answer}")
        if row.verdict not in RIGHT:
            label = f"{'expected':>{left + MARK_WIDTH - 2}}  "
            lines.append(label + truncate(_expected(row), right))
    more = examples - len(rows)
    return lines + ([f"… and {more} more in predictions.json"] if more > 0 else [])


def _expected(row: AnswerRow) -> str:
    """Returns the right answers in one line; one that reads like the wrong one is marked."""
    texts = (
        f"{visible(text)} (another span)" if text == row.answer else visible(text)
        for text in (text or NO_WORDS for text in row.expected)
    )
    return " | ".join(texts) or NO_ANSWER


def dead_letter_lines(path: Path) -> list[str]:
    """Returns the lines for a file of dead letters, none if it has none or is gone.

    Reasons that differ only in numbers and in quoted text are the same kind.
    """
    counts = Counter[str]()
    first = dict[str, str]()
    if not path.exists():
        return []
    with path.open("rb") as file:
        for letter in map(orjson.loads, file):
            kind = _DETAIL.sub("…", letter["reason"])
            counts[kind] += 1
            where = f"{letter['file']}, line {letter['line']}"
            first.setdefault(kind, f"{where}: {letter['reason']}")
    if not counts:
        return []
    total, ((kind, count),) = counts.total(), counts.most_common(1)
    records = "1 bad record is" if total == 1 else f"{total} bad records are"
    frequent = "the reason" if total == 1 else "the first reason"
    if count > 1:
        frequent = f"the most frequent reason ({count} times)"
    return [visible(f"{records} in {path}; {frequent}:"), visible(f"  {first[kind]}")]


def unread_lines(truncated_pages: int, unread_blocks: int) -> list[str]:
    """Returns the line for blocks that were not read, none if there are none.

    >>> unread_lines(2, 31)
    ['2 questions lost blocks of their pages, 31 blocks in all: a higher max_contexts reads them']
    """
    if not unread_blocks:
        return []
    questions = counted(truncated_pages, "question")
    blocks = counted(unread_blocks, "block")
    pages = "its page" if truncated_pages == 1 else "their pages"
    lost = f"{questions} lost blocks of {pages}, {blocks} in all"
    return [f"{lost}: a higher max_contexts reads them"]
