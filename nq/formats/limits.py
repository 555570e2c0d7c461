"""The limits of one record, so that none takes memory or time without bound.

They are far above the records of Natural Questions, whose largest pages have 125,000 tokens,
thousands of candidates and, with their HTML, some 15 MB of JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from nq.formats.fields import RecordError
from nq.records import Example


def _limit(value: int, unit: str) -> int:
    """A dataclass field, with the words for what is limited."""
    return field(default=value, metadata={"unit": unit})


@dataclass(frozen=True)
class RecordLimits:
    """How large a record may be; beyond any of the limits it is a dead letter.

    Args:
        bytes: of a line, or of a row of parquet in memory.
        depth: of nested arrays and objects in JSON; it is the limit of orjson, too.
        values: of a JSON record, counted by its commas and brackets before it is parsed; of a
            row of parquet.
        characters: of all tokens of the page.
        word_characters: of one token.
        question_characters: of the question.
        id_characters: of the id.
        tokens: of the page.
        candidates: for the long answer, nested ones included.
        block_tokens: tokens in top-level candidates; one that lies in two candidates counts
            twice, so that this bounds every loop over the text of candidates.
        windows: of the page.
        window_pieces: of all windows of the page, padding included.
        answers: gold answers that are text.
        document_bytes: of a SQuAD file, which is one JSON document and read as a whole.
        document_values: of such a file, counted as ``values``.
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
        """Checks counts of a record, each given by the name of its limit.

        Raises:
            RecordError: one is beyond its limit.

        >>> RecordLimits(tokens=10).check(tokens=11)
        Traceback (most recent call last):
        nq.formats.fields.RecordError: too large: 11 tokens, the limit is 10
        """
        for name, count in counts.items():
            if count > getattr(self, name):
                raise self.error(name, count)

    def error(self, name: str, count: int) -> RecordError:
        """Returns the error for a count that is beyond the limit ``name``."""
        limit = getattr(self, name)
        return RecordError(f"too large: {count} {UNITS[name]}, the limit is {limit}")

    def check_example(self, example: Example) -> None:
        """Checks question, page and candidates of an example.

        Raises:
            RecordError: one of them is too large.
        """
        spans = [c.span for c in example.candidates if c.top_level]
        self.check(
            question_characters=len(example.question),
            id_characters=len(str(example.example_id)),
            tokens=len(example.tokens),
            candidates=len(example.candidates),
            block_tokens=sum(span.end - span.start for span in spans),
            characters=sum(map(len, example.tokens)),
            word_characters=max(map(len, example.tokens), default=0),
        )


UNITS = {f.name: f.metadata["unit"] for f in fields(RecordLimits)}
LIMITS = RecordLimits()
