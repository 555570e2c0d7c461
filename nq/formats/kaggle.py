"""Predictions as Kaggle's "TensorFlow 2.0 Question Answering" takes them.

    example_id,PredictionString
    -545833482873225036_long,105:200
    -545833482873225036_short,YES

Token spans have an exclusive end, no answer is blank, several short spans stand side by side
with a blank between them. Rows are in the order of the data.
"""

from __future__ import annotations

from nq.records import Example, Prediction, Span, Weighed, YesNo

NAME = "kaggle"
FILE = "kaggle.csv"
HEADER = b"example_id,PredictionString\n"


def encode(example: Example, prediction: Prediction, weighed: Weighed | None) -> bytes:
    """The two rows of an example."""
    return "".join(f"{_quoted(name)},{answer}\n" for name, answer in rows(prediction)).encode()


def rows(prediction: Prediction) -> list[tuple[str, str]]:
    """The long and the short answer, each with its id.

    >>> rows(Prediction(7, Span(6, 18), 0.9, (Span(8, 9), Span(11, 13)), 0.8))
    [('7_long', '6:18'), ('7_short', '8:9 11:13')]
    >>> rows(Prediction("x", yes_no=YesNo.NO))
    [('x_long', ''), ('x_short', 'NO')]
    """
    long = _spans(() if prediction.long is None else (prediction.long,))
    yes_no = prediction.yes_no
    short = _spans(prediction.shorts) if yes_no is YesNo.NONE else str(yes_no)
    return [(f"{prediction.example_id}_long", long), (f"{prediction.example_id}_short", short)]


def _quoted(text: str) -> str:
    """A field of CSV; the ``csv`` module leaves a carriage return bare."""
    if not any(char in text for char in ',"\r\n'):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def _spans(spans: tuple[Span, ...]) -> str:
    return " ".join(f"{span.start}:{span.end}" for span in spans)
