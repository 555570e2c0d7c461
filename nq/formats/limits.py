"""The limits of one record, so that none takes memory or time without bound.

They are far above the records of Natural Questions, whose largest pages have 125,000 tokens,
thousands of candidates and, with their HTML, some 15 MB of JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from nq.formats.fields import RecordError
from nq.records import Example


def _limit(value: int, unit: str) -> int:
    return field(default=value, metadata={"unit": unit})


@dataclass
class RecordLimits:
    """How large a record may be; beyond any of the limits it is a dead letter.

    ``bytes`` are of a line, or of a row of parquet in memory. ``depth`` is the limit of orjson.
    ``values`` of JSON are counted by its commas and brackets before it is parsed. A token in two
    top-level candidates counts twice in ``block_tokens``, which so bounds every loop over the text
    of candidates. A SQuAD file, one JSON document, has limits of its own.
    """

    bytes: int = _limit(32 << 20, "bytes")
    depth: int = _limit(1024, "levels of nested JSON")
    values: int = _limit(4_000_000, "JSON values")
    characters: int = _limit(4_000_000, "characters on the page")
    word_characters: int = _limit(1_000_000, "characters in a token")
    question_characters: int = _limit(100_000, "characters in the question")
    id_characters: int = _limit(10_000, "characters in the example_id")
    tokens: int = _limit(1_000_000, "tokens")
    candidates: int = _limit(100_000, "candidates")
    block_tokens: int = _limit(2_000_000, "tokens in top-level candidates")
    windows: int = _limit(8192, "windows")
    window_pieces: int = _limit(1 << 22, "pieces in all windows, padding included")
    answers: int = _limit(10_000, "gold answers as text")
    document_bytes: int = _limit(256 << 20, "bytes of a SQuAD file")
    document_values: int = _limit(16_000_000, "JSON values in a SQuAD file")

    def check(self, **counts: int) -> None:
        """Raises ``RecordError`` if a count, given by the name of its limit, is beyond it.

        >>> RecordLimits(tokens=10).check(tokens=11)
        Traceback (most recent call last):
        nq.formats.fields.RecordError: too large: 11 tokens, the limit is 10
        """
        for name, count in counts.items():
            limit = getattr(self, name)
            if count > limit:
                raise RecordError(f"too large: {count} {UNITS[name]}, the limit is {limit}")

    def counts(self, example: Example) -> dict[str, int]:
        """Returns what of an example has a limit, by the name of the limit."""
        return {
            "question_characters": len(example.question),
            "id_characters": len(str(example.example_id)),
            "tokens": len(example.tokens),
            "candidates": len(example.candidates),
            "block_tokens": sum(
                c.span.end - c.span.start for c in example.candidates if c.top_level
            ),
            "characters": sum(map(len, example.tokens)),
            "word_characters": max(map(len, example.tokens), default=0),
        }


UNITS = {f.name: f.metadata["unit"] for f in fields(RecordLimits)}
LIMITS = RecordLimits()
