"""Examples as TFRecord data, with what the stages after preprocessing need of the input.

A record is JSON that is compressed by zlib: the key of the example, that is, number of the input
file and line in it, the number of its windows, which are in another file, and its fields.
"""

import json
import zlib
from dataclasses import asdict
from typing import Any

import numpy as np
import orjson

from nq.records import Annotation, Candidate, Example, ExampleKey, Original, Span, YesNo

LEVEL = 4


def encode_example(key: ExampleKey, example: Example, n_windows: int) -> bytes:
    """Returns an example as a record."""
    try:
        data = orjson.dumps(
            (key, n_windows, example), np.ndarray.tolist, orjson.OPT_SERIALIZE_NUMPY
        )
    except TypeError:  # there are lone surrogates
        parts = key, n_windows, asdict(example)
        text = json.dumps(parts, default=np.ndarray.tolist, ensure_ascii=False)
        data = text.encode("utf-8", "surrogatepass")
    return zlib.compress(data, LEVEL)


def decode_example(record: bytes) -> tuple[ExampleKey, Example, int]:
    """Returns key, example and number of windows; the inverse of ``encode_example``."""
    data = zlib.decompress(record)
    try:
        key, n_windows, values = orjson.loads(data)
    except orjson.JSONDecodeError:
        key, n_windows, values = json.loads(data.decode("utf-8", "surrogatepass"))
    candidates = [Candidate(Span(**c["span"]), c["top_level"]) for c in values["candidates"]]
    values |= {"candidates": candidates, "token_bytes": _pairs(values["token_bytes"])}
    if (annotations := values["annotations"]) is not None:
        values["annotations"] = tuple(map(_annotation, annotations))
    if (original := values["original"]) is not None:
        values["original"] = Original(**{**original, "chars": _pairs(original["chars"])})
    if (answers := values["answers"]) is not None:
        values["answers"] = tuple(answers)
    return tuple(key), Example(**values), n_windows


def _annotation(values: dict[str, Any]) -> Annotation:
    long, shorts = values["long"], (Span(**short) for short in values["shorts"])
    yes_no = YesNo(values["yes_no"])
    return Annotation(long and Span(**long), values["candidate"], tuple(shorts), yes_no)


def _pairs(values: list[list[int]] | None) -> Any:
    return None if values is None else np.array(values, np.int64).reshape(-1, 2)
