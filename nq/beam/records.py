"""What workers write for each record of the input: an answer, or a dead letter, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import orjson

from nq.beam.elements import Decided, Work
from nq.evaluation import labels, text_match
from nq.evaluation.answers import Answered, Row
from nq.evaluation.evaluate import Judgment
from nq.formats import decoding
from nq.inference.scorer import Counters
from nq.records import DeadLetter, Source


def encode_dead_letter(letter: DeadLetter) -> bytes:
    """Returns a dead letter without its source, which the key of its record has."""
    return orjson.dumps({"reason": letter.reason, "record": letter.record})


def encode_decided(decided: Decided) -> bytes:
    """Returns an answer without its source."""
    answered, judgment = decided.answered, decided.answered.judgment
    values = {
        "question": decided.question[: decoding.EXCERPT_CHARS],
        "prediction": answered.prediction,
        "is_null": answered.is_null,
        "outputs": {name: data.decode() for name, data in answered.outputs.items()},
        "label": _label(judgment.label),
        "gold": None if judgment.gold is None else [_label(gold) for gold in judgment.gold],
        "text": judgment.text,
        "correct": judgment.correct,
        "row": answered.row,
        "work": asdict(decided.work),
    }
    return orjson.dumps(values)


def decode(data: bytes, source: Source) -> Decided | DeadLetter:
    """Returns the answer or the dead letter of a record.

    Args:
        data: what ``encode_decided`` or ``encode_dead_letter`` returned.
        source: where the record was read.
    """
    values = orjson.loads(data)
    if "reason" in values:
        return DeadLetter(source, values["reason"], values["record"])
    work = values["work"]
    part = work["part"] and Counters(**work["part"])
    return Decided(source, values["question"], _answered(values), Work(**{**work, "part": part}))


def _answered(values: Mapping[str, Any]) -> Answered:
    row, gold, text = values["row"], values["gold"], values["text"]
    judgment = Judgment(
        values["prediction"]["example_id"],
        _decode_label(values["label"]),
        gold and [_decode_label(label) for label in gold],
        text and text_match.TextScore(**text),
        values["correct"],
    )
    return Answered(
        values["prediction"],
        values["is_null"],
        {name: text.encode() for name, text in values["outputs"].items()},
        judgment,
        row and Row(**{**row, "expected": tuple(row["expected"])}),
    )


def _label(label: labels.Label) -> list[Any]:
    spans = [[*span.bytes, *span.tokens] for span in (label.long, *label.short)]
    return [spans, label.yes_no, label.long_score, label.short_score]


def _decode_label(values: list[Any]) -> labels.Label:
    (long, *short), *others = values
    return labels.Label(labels.Span(*long), tuple(labels.Span(*s) for s in short), *others)
