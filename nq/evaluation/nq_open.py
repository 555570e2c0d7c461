"""Scores answers as text, by question, as NQ-open and EfficientQA have them.

    gold         {"question": "when was it automated", "answer": ["1986", "in 1986"]}
    predictions  {"question": "when was it automated", "prediction": "1986"}

Gold are records of any format with ``question`` and answers as text, also those of a retriever.
Each record counts, also of equal questions: these have one prediction for all of them, or one for
each in the order of gold. The evaluator of EfficientQA counts the last one of them alone.

Source: Min et al. 2021, NeurIPS 2020 EfficientQA Competition, for the format, and for the rule that
``nq.evaluation.text_match`` calls NQ-open.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from nq.evaluation import text_match
from nq.formats import input_files, inputs, lines, retrieved, text_gold
from nq.formats.fields import Record, RecordError, get
from nq.formats.own_data import QUESTION
from nq.text import counted

S = TypeVar("S")
T = TypeVar("T")
PREDICTION = "prediction"


def is_predictions(path: str) -> bool:
    """Returns whether the first record of a file is a prediction for a question."""
    with suppress(RecordError):
        return any(PREDICTION in lines.parsed(row) for _, row in inputs.rows(path, limit=1))
    return False


def evaluate(gold: Sequence[str], predictions: str) -> dict[str, float]:
    """Returns exact match and F1 of words.

    Raises:
        ValueError: a record is bad, or the questions of gold and of the predictions differ.
    """
    with input_files.unchanged([*gold, predictions]):
        answers = _by_question([predictions], lambda record: get(record, PREDICTION, str))
        right = _by_question(gold, lambda record: text_gold.texts(retrieved.flat(record)))
    missing = right.keys() - answers.keys()
    extra = answers.keys() - right.keys()
    if missing or extra:
        example = min(missing or extra)
        raise ValueError(
            f"{counted(len(missing), 'question')} of gold without a prediction, {len(extra)} "
            f"predictions without gold, such as {example!r:.80}: give one prediction a question"
        )
    scores = [
        text_match.score_text(texts, answer, text_match.Rule.NQ_OPEN)
        for question in right
        for texts, answer in _pairs(question, right[question], answers[question])
    ]
    return text_match.metrics(scores)


def _pairs(
    question: str,
    right: Sequence[S],
    answers: Sequence[T],
) -> Iterator[tuple[S, T]]:
    """Returns the gold of each record with a question beside the prediction for it."""
    if len(answers) == 1:
        answers = [*answers] * len(right)
    if len(answers) != len(right):
        raise ValueError(
            f"{question!r:.80} comes {len(right)} times in gold, but {len(answers)} times in the "
            "predictions: give one prediction for all of them, or one for each in the order of gold"
        )
    return zip(right, answers, strict=True)


def _by_question(
    paths: Iterable[str],
    value: Callable[[Record], T],
) -> Mapping[str, Sequence[T]]:
    """Returns a value of each record of the files, by its question."""
    values = defaultdict[str, list[T]](list)
    for path in paths:
        inputs.check(path)
        for number, row in inputs.rows(path):
            try:
                record = lines.parsed(row)
                values[get(record, QUESTION, str).strip()].append(value(record))
            except RecordError as error:
                raise ValueError(f"{path}, line {number}: {error}") from error
    return values
