"""The summary of a run as text."""

import shutil
from collections.abc import Sequence

from nq.evaluation.answers import AnswerRow
from nq.report.comparison import MIB
from nq.report.skipped import unread_line
from nq.report.tables import phases
from nq.runs.profile_choice import without_gain
from nq.runs.result import Result
from nq.text import counted, format_bytes, truncate, visible

MARKS = {True: "right", False: "WRONG", None: ""}
QUESTION_WIDTH, ANSWER_WIDTH, MARK_WIDTH = 58, 60, 9  # a mark with the blanks around it
MIN_WIDTH, MAX_WIDTH = 40, QUESTION_WIDTH + ANSWER_WIDTH + MARK_WIDTH
NO_ANSWER, NO_WORDS = "(no answer)", "(no words)"


def summary(result: Result, dead_letters: Sequence[str] = ()) -> str:
    """Returns the table of answers, then at most five lines, and one for what is not usual."""
    lines = [*_table(result), ""] if result.rows else []
    skipped = f"{counted(result.dead_letters, 'record')} skipped, " if result.dead_letters else ""
    lines.append(
        f"{counted(result.examples, 'question')}, {result.answered} answered, {skipped}"
        f"{counted(result.windows, 'window')} (profile {result.profile}, {result.precision} on "
        f"{result.device})"
    )
    lines += _scores(result)
    seconds, _ = phases(result.time)
    shown = ", ".join(f"{name} {value:.1f}" for name, value in seconds.items() if value >= 0.05)
    lines.append(
        f"{result.time['total_s']:.1f} s ({shown}); {result.windows_per_s:.1f} windows/s; peak "
        f"memory {result.peak_memory_bytes / MIB:.0f} MiB"
    )
    lines += [*_notes(result), *dead_letters]
    disk = f"{format_bytes(result.run_bytes)}, and {format_bytes(result.windows_bytes)} of windows"
    lines.append(visible(f"written to {result.folder} ({disk}, which nq clean removes)"))
    if result.how_to_open:
        lines.append(f"see the run: {result.how_to_open}")
    return "\n".join(lines)


def _notes(result: Result) -> list[str]:
    lines = []
    if result.threads is not None:
        instances = f"{counted(result.instances, 'instance')} of " if result.instances else ""
        lines.append(f"computed by {instances}{counted(result.threads, 'thread')}")
    if beam := result.beam:
        flink = f", in Flink {beam['flink_job_id']}" if "flink_job_id" in beam else ""
        job_id = f", id {beam['job_id']}" if beam["job_id"] else ""
        job = f"job {beam['job_name']}{job_id}{flink}"
        lines.append(visible(f"answered by {beam['runner']}: {job}"))
    if result.unread_blocks:
        lines.append(unread_line(result.truncated_pages, result.unread_blocks))
    if "prune" in result.profile.split("+"):  # windows of repeated records are not computed either
        lines.append(f"{result.read_windows} of the windows were computed, the others pruned")
    if result.second_model_windows:
        windows = counted(result.second_model_windows, "window")
        lines.append(f"computed by the second model: {windows}")
    if result.float32_windows:
        lines.append(f"computed again in float32: {counted(result.float32_windows, 'window')}")
    if result.rescored:
        examples = counted(result.rescored, "example")
        lines.append(f"rescored in float32: {examples} with a close decision")
    if parity := result.parity:
        scores = "".join(f", {name} by {value:+.4f}" for name, value in parity.f1.items())
        most = parity.max_drift
        drift = "" if most is None else f"; best logits differ by {most:.2g} at most"
        lines.append(
            f"against {parity.against}: {parity.changed} of {parity.answers} answers changed "
            f"({parity.changed_share:.1%}){scores}{drift}"
        )
        if parity.gate:
            lines.append(f"gate: {parity.gate}")
    if result.resumed:
        parts = f"; seconds are of all {result.parts} parts" if result.parts > 1 else ""
        scored = f"resumed: an earlier run scored {counted(result.resumed_windows, 'window')}"
        lines.append(f"{scored}{parts}")
    if result.not_comparable:
        reasons = ", ".join(result.not_comparable)
        lines.append(f"the speed is not comparable with that of other runs: {reasons}")
    no_gain = "" if result.beam else without_gain(result.profile, result.device)
    if text := result.choice or no_gain:
        lines.append(visible(text))
    return lines


def _scores(result: Result) -> list[str]:
    lines = []
    m = result.metrics
    if "squad_f1" in m:
        lines.append(
            f"exact match {m['squad_exact_match']:.3f}   F1 of words {m['squad_f1']:.3f}   "
            f"({m['squad_n']} questions with answers as text, by SQuAD's definition)"
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


def _table(result: Result) -> list[str]:
    """Returns a line per answer with question and correctness, and what was expected if wrong."""
    columns = shutil.get_terminal_size((MAX_WIDTH, 1)).columns
    width = max(MIN_WIDTH, min(columns, MAX_WIDTH)) - MARK_WIDTH
    left = width * QUESTION_WIDTH // (QUESTION_WIDTH + ANSWER_WIDTH)
    right = width - left
    lines = []
    for row in result.rows:
        question = f"{truncate(visible(row.question), left):<{left}}"
        answer = truncate(visible(row.answer or NO_ANSWER), right)
        lines.append(f"{question}  {MARKS[row.correct]:<5}  {answer}")
        if row.correct is False:
            label = f"{'expected':>{left + MARK_WIDTH - 2}}  "
            lines.append(label + truncate(_expected(row), right))
    more = result.examples - len(result.rows)
    return lines + ([f"… and {more} more in predictions.json"] if more > 0 else [])


def _expected(row: AnswerRow) -> str:
    """Returns the right answers in one line; one that reads like the wrong one is marked."""
    texts = (
        f"{visible(text)} (another span)" if text == row.answer else visible(text)
        for text in (text or NO_WORDS for text in row.expected)
    )
    return " | ".join(texts) or NO_ANSWER
