"""The answers to examples, and the files of all answers of a run.

A local run decides its examples itself; with a runner of Beam the workers do, and another process
writes the files. Both use the functions here, so that the files are the same.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from nq.evaluation.evaluate import Evaluation, JudgedPrediction, expected_texts, judge
from nq.evaluation.nq_eval import Verdict
from nq.formats import outputs
from nq.formats.documents import one_line
from nq.formats.outputs import encode_prediction, write_predictions
from nq.postprocess.decision import RankedPrediction
from nq.records import Answer, Example, Prediction, YesNo

PREDICTIONS = "predictions.json"


@dataclass(frozen=True)
class AnswerRow:
    """One answer of the table of answers, in words; empty for no answer.

    ``verdict`` is ``None`` without gold. If the answer is not as in gold, ``expected`` has the
    right ones, that of the most annotators first.
    """

    question: str
    answer: str
    verdict: Verdict | None
    expected: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answered:
    """The answer to one example without its page, as the files and metrics of a run need it.

    The ``prediction`` is in the official format; ``outputs`` has it in other formats, by name.
    """

    prediction: Mapping[str, Any]
    outputs: Mapping[str, bytes]
    judgment: JudgedPrediction
    row: AnswerRow | None = None


def answer(
    example: Example,
    ranked: RankedPrediction,
    formats: Sequence[str] = (),
    with_row: bool = False,
) -> Answered:
    """Returns the answer to an example by the decision for it, beside its gold."""
    prediction = ranked.prediction
    # the predictions of the originals' rules, which rank nothing, have no bytes
    token_bytes = example.token_bytes if ranked.ranking else None
    encoded = encode_prediction(prediction, token_bytes, example)
    judgment = judge(example, prediction)
    return Answered(
        encoded,
        outputs.encode(formats, example, prediction, ranked.alternatives),
        judgment,
        table_row(example, prediction, judgment.verdict) if with_row else None,
    )


def write_answers(
    folder: Path, answers: Iterable[Answered], formats: Sequence[str]
) -> tuple[Evaluation, list[AnswerRow]]:
    """Writes the answers of a run, in their order, in all formats.

    Returns:
        Their evaluation, and the rows of those that have one.
    """
    evaluation = Evaluation()
    rows = list[AnswerRow]()

    def predictions() -> Iterator[Mapping[str, Any]]:
        for one in answers:
            evaluation.add(one.judgment)
            write(one.outputs)
            if one.row is not None:
                rows.append(one.row)
            yield one.prediction

    with outputs.open_writer(folder, formats) as write:
        write_predictions(folder / PREDICTIONS, predictions())
    return evaluation, rows


def table_row(
    example: Example,
    prediction: Prediction,
    verdict: Verdict | None,
) -> AnswerRow:
    """Returns an answer of the table, with the right answers if it is not right."""
    in_words = partial(answer_text, example)
    is_right = verdict in (None, Verdict.RIGHT, Verdict.NULL)
    expected = () if is_right else tuple(expected_texts(example, in_words))
    return AnswerRow(example.question, in_words(prediction), verdict, expected)


def answer_text(example: Example, answer: Answer) -> str:
    """Returns the answer in words: YES or NO, the short answers, the long one, or empty."""
    if answer.yes_no is not YesNo.NONE:
        return str(answer.yes_no)
    if answer.shorts:
        return "; ".join(one_line(example, span) for span in answer.shorts)
    return one_line(example, answer.long) if answer.long else ""
