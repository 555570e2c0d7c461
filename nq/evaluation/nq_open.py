"""Scores answers as text, by question, as NQ-open and EfficientQA have them.

    gold         {"question": "when was it automated", "answer": ["1986", "in 1986"]}
    predictions  {"question": "when was it automated", "prediction": "1986"}

Gold are records of any format with ``question`` and answers as text, also those of a retriever.

Source: Min et al. 2021, NeurIPS 2020 EfficientQA Competition. The rules are those of SQuAD's scorer
(``nq.evaluation.text_match``).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import TypeVar

from nq.evaluation import text_match
from nq.formats import input_files, inputs, lines, retrieved, text_gold
from nq.formats.fields import Record, RecordError, get
from nq.formats.own_data import QUESTION
from nq.text import counted

T = TypeVar("T")
PREDICTION = "prediction"


def is_predictions(path: str) -> bool:
    """Returns whether the first record of a file is a prediction for a question."""
    with suppress(RecordError):
        return any(PREDICTION in lines.parsed(row) for _, row in inputs.rows(path, limit=1))
    return False


def evaluate(gold: Sequence[str], predictions: str) -> dict[str, float]:
    """Returns exact match and F1 of words; of equal questions the last record counts.

    Raises:
        ValueError: a record is bad, or the questions of gold and of the predictions differ.
    """
    with input_files.unchanged([*gold, predictions]):
        answers = dict(_by_question(predictions, lambda record: get(record, PREDICTION, str)))
        right = dict(chain.from_iterable(_by_question(path, _gold) for path in gold))
    missing, extra = right.keys() - answers.keys(), answers.keys() - right.keys()
    if missing or extra:
        example = min(missing or extra)
        raise ValueError(
            f"{counted(len(missing), 'question')} of gold without a prediction, {len(extra)} "
            f"predictions without gold, such as {example!r:.80}: give one prediction a question"
        )
    scores = [text_match.score_text(right[key], answers[key]) for key in right]
    return text_match.metrics(scores)


def _gold(record: Record) -> tuple[str, ...]:
    return text_gold.texts(retrieved.flat(record))


def _by_question(path: str, value: Callable[[Record], T]) -> Iterator[tuple[str, T]]:
    """Yields the question and a value of each record of a file."""
    inputs.check(path)
    for number, row in inputs.rows(path):
        try:
            record = lines.parsed(row)
            yield get(record, QUESTION, str).strip(), value(record)
        except RecordError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
