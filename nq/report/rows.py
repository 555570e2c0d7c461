"""The table of a run's answers, as text and as HTML."""

import shutil
from collections.abc import Sequence

from nq.evaluation.answer_files import AnswerRow
from nq.evaluation.evaluate import Verdict
from nq.text import counted, html_table, truncate, visible

RIGHT = None, Verdict.RIGHT
MARKS = {None: "", Verdict.RIGHT: "right", Verdict.PASSAGE: "passage"}
MARKS |= {one: one.upper() for one in Verdict if one not in MARKS}
QUESTION_WIDTH, ANSWER_WIDTH, MARK_WIDTH = 57, 59, 11  # a mark with the blanks around it
MIN_WIDTH, MAX_WIDTH = 40, QUESTION_WIDTH + ANSWER_WIDTH + MARK_WIDTH
NO_ANSWER, NO_WORDS = "(no answer)", "(no words)"
MAX_CHARS = 200  # of a text in HTML


def table(rows: Sequence[AnswerRow], examples: int) -> list[str]:
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
            lines.append(label + truncate(expected(row), right))
    more = examples - len(rows)
    return lines + ([f"… and {more} more in predictions.json"] if more > 0 else [])


def html(lines: Sequence[str], rows: Sequence[AnswerRow], examples: int) -> str:
    """Returns lines of text and the table of the first answers to so many examples."""
    heads = f"{len(rows)} of {counted(examples, 'question')}", "answer", "", "expected"
    texts = list[list[str]]()
    for row in rows:
        right = "" if row.verdict in RIGHT else expected(row)
        cells = (row.question, row.answer or NO_ANSWER, MARKS[row.verdict], right)
        texts.append([truncate(visible(text), MAX_CHARS) for text in cells])
    return html_table(lines, heads, texts)


def expected(row: AnswerRow) -> str:
    """Returns the right answers in one line; one that reads like the wrong one is marked."""
    texts = (
        f"{visible(text)} (another span)" if text == row.answer else visible(text)
        for text in (text or NO_WORDS for text in row.expected)
    )
    return " | ".join(texts) or NO_ANSWER
