"""Predictions in the format of Kaggle's "TensorFlow 2.0 Question Answering".

    example_id,PredictionString
    -545833482873225036_long,105:200
    -545833482873225036_short,YES

Token spans have an exclusive end, no answer is empty, several short spans are separated by
blanks. Rows are in the order of the data. The ids of the competition are whole numbers, often
negative. Any other id that a spreadsheet would take for a formula gets a ``'`` before it, so that
opening the file runs nothing.
"""

from __future__ import annotations

import re

from nq.records import Prediction, Span, YesNo

_NUMBER = re.compile(r"-?\d+", re.ASCII)
_FORMULA = re.compile(r"'*[\s\x00-\x1f]*[=+\-@\uff1d\uff0b\uff0d\uff20|%]|'*[\t\r\n\x00]")
"""What begins a formula: after blanks, too, since some programs remove them; in full width, too."""


def encode(prediction: Prediction) -> bytes:
    """Returns the two rows of an example."""
    return "".join(f"{_quoted(name)},{answer}\n" for name, answer in rows(prediction)).encode()


def rows(prediction: Prediction) -> list[tuple[str, str]]:
    """Returns the long and the short answer, each with its id.

    >>> rows(Prediction(7, Span(6, 18), 0.9, (Span(8, 9), Span(11, 13)), 0.8))
    [('7_long', '6:18'), ('7_short', '8:9 11:13')]
    >>> rows(Prediction("x", yes_no=YesNo.NO))
    [('x_long', ''), ('x_short', 'NO')]
    """
    long = _spans(() if prediction.long is None else (prediction.long,))
    yes_no = prediction.yes_no
    short = _spans(prediction.shorts) if yes_no is YesNo.NONE else str(yes_no)
    name = str(prediction.example_id)
    if _FORMULA.match(name) and not _NUMBER.fullmatch(name):
        name = f"'{name}"
    return [(f"{name}_long", long), (f"{name}_short", short)]


def _quoted(text: str) -> str:
    """Returns a CSV field; the ``csv`` module does not quote a lone carriage return."""
    if not any(char in text for char in ',"\r\n'):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def _spans(spans: tuple[Span, ...]) -> str:
    return " ".join(f"{span.start}:{span.end}" for span in spans)
