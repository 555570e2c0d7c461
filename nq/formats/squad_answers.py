"""Predictions as SQuAD's scorer reads them, ``{id: answer}``, with an empty text for no answer:

    {"56be4db0acb8001400a502ec": "Denver Broncos", "5ad39d53604f3c001a3fe8d1": ""}

The answer is the short one, ``yes`` or ``no``; of several short answers all, with ``;`` between
them.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from nq.records import Alternative, Example, Prediction

NAME = "squad"
FILE = "squad.json"
HEADER, SEPARATOR, FOOTER = b"{\n", b",\n", b"\n}\n"
ALTERNATIVES = 0


def encode(
    example: Example, prediction: Prediction, alternatives: Sequence[Alternative] | None
) -> bytes:
    """Returns the entry of an example."""
    answer = example.short_answer(prediction.shorts, prediction.yes_no)
    key, value = str(example.example_id), answer.encode("utf-8", "replace").decode()
    return orjson.dumps(key) + b": " + orjson.dumps(value)
