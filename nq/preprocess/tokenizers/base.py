"""words -> pieces, behind one small interface.

A tokenizer sees single words and gives each its piece ids, so that every piece belongs
to one word and every word to one document token. Markers such as ``[Q]`` are looked up
by name through ``marker_id`` and by nothing else: text that spells ``[SEP]`` stays text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

Pieces = tuple[int, ...]

MAX_CACHED_WORDS = 1_000_000

# The markers of BERT-Joint's vocab-nq.txt, in the order of its rows 104 to 310.
MARKERS: tuple[str, ...] = (
    "[Q]",
    "[YES]",
    "[NO]",
    "[NoLongAnswer]",
    "[NoShortAnswer]",
    *(f"[{kind}={n}]" for kind in ("Paragraph", "Table", "List") for n in range(1, 51)),
    *(f"[ContextId={n}]" for n in range(-1, 51)),
)

# What the vocabularies of all kinds call the pieces that text must not have.
SPECIAL = frozenset(
    (
        *MARKERS,
        *("[CLS]", "[SEP]", "[PAD]", "[MASK]"),
        *("<s>", "</s>", "<pad>", "<mask>", "<cls>", "<sep>"),
    )
)


class Tokenizer(ABC):
    """Piece ids for words.

    Attributes:
        files: the files it was made from, by the names a model folder keeps them under.
        vocab_size: number of ids, markers included.
        pieces: number of ids without the markers that lie behind its last piece.
        cls_id, sep_id, pad_id, unk_id: the special pieces.
        separators: how many separators stand between question and page; one for BERT,
            two for RoBERTa and XLM-RoBERTa.
        segments: whether question and page are of different segments, as for BERT.
    """

    files: dict[str, Path]
    vocab_size: int
    pieces: int
    separators: int = 1
    segments: bool = True
    cls_id: int
    sep_id: int
    pad_id: int
    unk_id: int

    def __init__(self) -> None:
        self._cache: dict[str, Pieces] = {}

    @abstractmethod
    def _encode(self, words: Sequence[str]) -> list[Pieces]:
        """The pieces of each word, always as plain text."""

    @abstractmethod
    def piece_id(self, piece: str) -> int | None:
        """The id of a piece of the vocabulary by its spelling, special or not."""

    @abstractmethod
    def marker_id(self, marker: str) -> int:
        """The id of a marker, ``unk_id`` for one that the vocabulary does not know."""

    def encode(self, words: Sequence[str]) -> list[Pieces]:
        """The pieces of each word; a blank word has none. Words are remembered."""
        cache = self._cache
        unseen = list(set(words).difference(cache))
        if unseen:
            if len(cache) + len(unseen) > MAX_CACHED_WORDS:
                cache.clear()
                unseen = list(set(words))
            cache.update(zip(unseen, self._encode(unseen), strict=True))
        return list(map(cache.__getitem__, words))


def marker_ids(known: dict[str, int], unused: Sequence[int], size: int) -> dict[str, int]:
    """Ids of ``MARKERS``: their own where the vocabulary names them, else unused rows.

    BERT-Joint renamed the uncased BERT vocabulary's [unused] rows 104 to 310, so that a
    plain vocabulary with those rows means the same ids. A vocabulary of ``size`` pieces
    with too few such rows gets the ids after its last, for which the embedding table
    needs new rows.
    """
    named = {marker: known[marker] for marker in MARKERS if marker in known}
    if named:
        return named
    free = unused if len(unused) >= len(MARKERS) else range(size, size + len(MARKERS))
    return dict(zip(MARKERS, free, strict=False))
