"""Examples as the data of TFRecords: what the stages behind preprocessing need of the input.

A record is compressed by zlib. It begins with the length of a JSON object, as four bytes. The
object has the question and its gold, and describes the arrays that follow it, little-endian.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from nq.records import (
    Annotation,
    Candidate,
    Example,
    ExampleKey,
    IntArray,
    Original,
    Span,
    YesNo,
)

LEVEL, LENGTH_BYTES = 1, 4


def encode_example(key: ExampleKey, example: Example, n_windows: int) -> bytes:
    """Returns an example as a record.

    Args:
        key: number of the input file, and line of the example in it, as its windows have them.
        n_windows: number of its windows, which are in another file.
    """
    original, annotations = example.original, example.annotations
    header = {
        "key": key,
        "windows": n_windows,
        "id": example.example_id,
        "question": example.question,
        "title": example.title,
        "is_wiki": example.is_wiki,
        "answers": example.answers,
        "annotations": annotations and [_annotation_values(one) for one in annotations],
        "is_plain": original is not None and original.plain is not None,
    }
    arrays: dict[str, IntArray] = {
        "is_html": np.packbits(np.array(example.is_html, np.bool_)),
        "candidates": np.array(
            [(c.span.start, c.span.end, c.top_level) for c in example.candidates], np.int32
        ),
        **_text_arrays("tokens", example.tokens),
    }
    if example.token_bytes is not None:
        arrays["token_bytes"] = example.token_bytes
    if original is not None:
        arrays |= {"chars": original.chars, **_text_arrays("spelling", original.spelling)}
        arrays |= _text_arrays("plain", [original.plain or ""])
    header["arrays"] = [(name, x.dtype.str, x.shape) for name, x in arrays.items()]
    start = _encode(json.dumps(header, ensure_ascii=False))  # orjson refuses lone surrogates
    parts = (len(start).to_bytes(LENGTH_BYTES, "little"), start, *map(_bytes, arrays.values()))
    return zlib.compress(b"".join(parts), LEVEL)


def decode_example(record: bytes) -> tuple[ExampleKey, Example, int]:
    """Returns key, example and number of windows; the inverse of ``encode_example``."""
    data = zlib.decompress(record)
    at = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "little")
    header, arrays = json.loads(_decode(data[LENGTH_BYTES:at])), dict[str, IntArray]()
    for name, kind, shape in header["arrays"]:
        array = np.frombuffer(data, kind, int(np.prod(shape)), at).reshape(shape)
        arrays[name], at = array, at + array.nbytes
    tokens, original, annotations = _texts("tokens", arrays), None, header["annotations"]
    if "chars" in arrays:
        plain = _texts("plain", arrays)[0] if header["is_plain"] else None
        original = Original(arrays["chars"], plain, _texts("spelling", arrays))
    candidates = arrays["candidates"].reshape(-1, 3).tolist()
    example = Example(
        header["id"],
        header["question"],
        tokens,
        np.unpackbits(arrays["is_html"].view(np.uint8), count=len(tokens)).view(np.bool_).tolist(),
        [Candidate(Span(start, end), bool(top)) for start, end, top in candidates],
        None if annotations is None else tuple(map(_annotation, annotations)),
        token_bytes=arrays.get("token_bytes"),
        is_wiki=header["is_wiki"],
        title=header["title"],
        original=original,
        answers=None if header["answers"] is None else tuple(header["answers"]),
    )
    return tuple(header["key"]), example, header["windows"]


def _annotation_values(one: Annotation) -> list[Any]:
    long = one.long and (one.long.start, one.long.end)
    return [long, one.candidate, [(s.start, s.end) for s in one.shorts], one.yes_no]


def _annotation(values: Sequence[Any]) -> Annotation:
    long, candidate, shorts, yes_no = values
    return Annotation(
        long and Span(*long), candidate, tuple(Span(*short) for short in shorts), YesNo(yes_no)
    )


def _text_arrays(name: str, texts: Sequence[str]) -> dict[str, IntArray]:
    """Returns texts as two arrays: their characters, and their lengths of the smallest type."""
    data = _encode("".join(texts))
    lengths = np.array(list(map(len, texts)), np.int64)
    small = lengths.astype(np.min_scalar_type(int(lengths.max(initial=0))))
    return {name: np.frombuffer(data, np.uint8), f"{name}_lengths": small}


def _texts(name: str, arrays: dict[str, IntArray]) -> list[str]:
    text = _decode(arrays[name].tobytes())
    ends = accumulate(arrays[f"{name}_lengths"].tolist(), initial=0)
    return [text[start:end] for start, end in pairwise(ends)]


def _bytes(array: IntArray) -> bytes:
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
