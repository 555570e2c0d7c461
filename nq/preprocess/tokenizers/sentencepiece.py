"""Reads SentencePiece's ``.model`` files, which are protobuf messages.

Fields: https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
Wire format: https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Iterator
from pathlib import Path
from struct import unpack
from typing import Any

from tokenizers import AddedToken

PIECES, TRAINER, NORMALIZER = 1, 2, 3
TEXT, SCORE, KIND = 1, 2, 3  # of a piece
CONTROL, USER_DEFINED = 3, 4  # kinds
MODEL_TYPE, UNIGRAM = 3, 1  # of the trainer
CHARACTER_MAP = 2  # of the normalizer
_SIZES = {1: 8, 5: 4}  # of fields of a fixed size


def read_sentencepiece(path: Path) -> tuple[list[tuple[str, float]], bytes, list[AddedToken]]:
    """Reads a ``.model`` file; ``ValueError`` if it is not of the type unigram.

    Returns:
        Each piece with its score; the map of characters that replaces some before the text is cut;
        the pieces that are found in any text, and special ones.
    """
    pieces, added, parts = list[tuple[str, float]](), list[AddedToken](), dict[int, Any]()
    for number, value in _fields(path.read_bytes()):
        if number != PIECES:
            parts[number] = dict(_fields(value)) if number in (TRAINER, NORMALIZER) else value
            continue
        fields = dict(_fields(value))
        text, kind = fields[TEXT].decode(), fields.get(KIND)
        pieces.append((text, unpack("<f", fields.get(SCORE, bytes(4)))[0]))
        if kind in (CONTROL, USER_DEFINED):
            added.append(AddedToken(text, normalized=False, special=kind == CONTROL))
    if parts.get(TRAINER, {}).get(MODEL_TYPE, UNIGRAM) != UNIGRAM:
        raise ValueError(
            f"{path} is a SentencePiece model of another type than unigram, for which versions of "
            "transformers differ: save the tokenizer with transformers as tokenizer.json"
        )
    return pieces, parts.get(NORMALIZER, {}).get(CHARACTER_MAP, b""), added


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yields the number and the value, a whole number or bytes, of each field of a message.

    >>> dict(_fields(b"\\x18\\x02\\x12\\x01a"))
    {3: 2, 2: b'a'}
    """
    at = 0

    def varint() -> int:
        nonlocal at
        value = 0
        for shift in range(0, 70, 7):
            byte = message[at]
            at, value = at + 1, value | (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError(f"a number of the file has no end at byte {at}")

    while at < len(message):
        number, kind = divmod(varint(), 8)
        if kind == 0:
            yield number, varint()
            continue
        size = varint() if kind == 2 else _SIZES[kind]
        if size > len(message) - at:
            raise ValueError(f"the file ends within a field of {size} bytes")
        yield number, message[at : at + size]
        at += size
