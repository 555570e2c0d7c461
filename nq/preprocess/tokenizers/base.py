"""words -> pieces, behind one small interface.

A tokenizer takes single words and gives each its piece ids, so that every piece belongs to one
word and every word to one document token. Markers such as ``[Q]`` are looked up by name with
``marker_id`` only: text that spells ``[SEP]`` stays text.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
from tokenizers import AddedToken, Encoding

from nq.records import IntArray

MAX_ID = 2**31 - 1  # windows hold int32
BYTE_LEVEL_BLANK = "\u0120"
Pieces = tuple[int, ...]

# The markers of BERT-Joint's vocab-nq.txt, in the order of its rows 104 to 310.
MARKERS: tuple[str, ...] = (
    *("[Q]", "[YES]", "[NO]", "[NoLongAnswer]", "[NoShortAnswer]"),
    *(f"[{kind}={n}]" for kind in ("Paragraph", "Table", "List") for n in range(1, 51)),
    *(f"[ContextId={n}]" for n in range(-1, 51)),
)

BLOCK_MARKERS = MARKERS[MARKERS.index("[NoLongAnswer]") : MARKERS.index("[ContextId=-1]")]
CONTEXT_MARKERS = MARKERS[MARKERS.index("[ContextId=-1]") :]
"""``[ContextId=i] [Type=n]`` introduce a block: the second one is of ``BLOCK_MARKERS``."""

# The special pieces of all kinds of vocabularies; text never becomes one of them.
SPECIAL = frozenset(MARKERS) | {"[CLS]", "[SEP]", "[PAD]", "[MASK]"}
SPECIAL |= {"<s>", "</s>", "<pad>", "<mask>", "<cls>", "<sep>"}


@dataclass(frozen=True, slots=True, eq=False)
class TextPieces:
    """The P pieces of a text: the number of the word of each, and its characters, ``[P, 2]``."""

    ids: Sequence[int]
    words: IntArray
    chars: IntArray

    @classmethod
    def of(cls, encoding: Encoding, text: str) -> Self:
        """Returns the pieces that the ``tokenizers`` library found; some kinds know no words."""
        ids, chars = encoding.word_ids, np.array(encoding.offsets, np.int64).reshape(-1, 2)
        words = np.arange(len(ids)) if None in ids else np.array(ids, np.int64)
        for row, piece in enumerate(encoding.tokens):
            if piece.startswith(BYTE_LEVEL_BLANK):  # the blank is none of its characters
                start, end = chars[row].tolist()
                chars[row, 0] = end - len(text[start:end].lstrip(" "))
        return cls(encoding.ids, words, chars)


class Tokenizer(ABC):
    """Maps words to piece ids. It may be used from several threads at once.

    Attributes:
        files: the files it was loaded from, by their names in a model folder.
        options: how it prepares text, by the names in ``tokenizer_config.json``.
        vocab_size: number of ids, markers included.
        pieces: number of ids without the markers that follow its last piece.
        separators: number of separators between question and page: one for BERT, two for
            RoBERTa, XLM-RoBERTa and MPNet.
        segments: whether question and page are different segments, as for BERT.
        max_cached_size: characters and pieces of words in memory after which all are forgotten.
        batch_characters: characters of words after which a call of the library ends, because its
            results take much memory.
    """

    pad_id: int
    unk_id: int
    options: Mapping[str, Any] = {}
    separators: int = 1
    segments: bool = True
    max_cached_size: int = 10_000_000
    batch_characters: int = 1 << 18
    _specials: Set[int] = frozenset()
    """Ids that text must not get, of kinds that find special pieces in text."""

    def __init__(
        self, files: dict[str, Path], ids: Mapping[str, int], unused: Sequence[int] = ()
    ) -> None:
        """Assigns ids to the markers.

        BERT-Joint renamed the uncased BERT vocabulary's [unused] rows 104 to 310, so that a plain
        vocabulary with those ``unused`` rows gives the same markers. Of a vocabulary that neither
        names the markers nor has enough unused rows, they get the ids after the last piece, and
        the embedding table needs those rows.
        """
        self.files, self._ids = files, ids
        for piece, i in ids.items():
            if type(i) is not int or not 0 <= i <= MAX_ID:
                raise ValueError(
                    f"{next(iter(files.values()))} gives {piece!r:.40} the id {i!r:.40}: expected "
                    f"a whole number from 0 to {MAX_ID}"
                )
        self.cls_id = self._id_of("[CLS]", "<s>", "<cls>")
        self.sep_id = self._id_of("[SEP]", "</s>", "<sep>")
        self.pieces = max(ids.values()) + 1
        self._markers = {marker: ids[marker] for marker in MARKERS if marker in ids}
        if not self._markers:
            new = range(self.pieces, self.pieces + len(MARKERS))
            free = unused if len(unused) >= len(MARKERS) else new
            self._markers = dict(zip(MARKERS, free, strict=False))
        self.vocab_size = max(self.pieces - 1, *self._markers.values()) + 1
        self._cache: dict[str, Pieces] = {}
        self._cached_size = 0

    def _id_of(self, *spellings: str) -> int:
        for piece in spellings:
            if piece in self._ids:
                return self._ids[piece]
        path, names = next(iter(self.files.values())), ", ".join(spellings)
        raise ValueError(f"{path} has none of the pieces {names}: train the tokenizer with one")

    @abstractmethod
    def _ids_of(self, texts: Sequence[str]) -> list[Pieces]:
        """Returns the ids of each text, or of each character of one text."""

    def _encode(self, words: Sequence[str]) -> list[Pieces]:
        """Returns the pieces of each word, character by character if it spells a special piece."""
        texts = [word if word.strip() else "" for word in words]
        return [
            ids if self._specials.isdisjoint(ids) else tuple(chain(*self._ids_of(text)))
            for text, ids in zip(texts, self._ids_of(texts), strict=True)
        ]

    def piece_id(self, piece: str) -> int | None:
        """Returns the id of a piece by its spelling, special or not, ``None`` if unknown."""
        return self._ids.get(piece)

    def marker_id(self, marker: str) -> int:
        """Returns the id of a marker, ``unk_id`` if the vocabulary does not have it."""
        return self._markers.get(marker, self.unk_id)

    def encode(self, words: Sequence[str]) -> list[Pieces]:
        """Returns the pieces of each word; a blank word has none."""
        cache, unique = self._cache, set(words)
        unseen = [word for word in unique if word not in cache]
        if unseen and self._cached_size > self.max_cached_size:
            # A new one, because another thread may be reading the old one.
            cache, unseen = {}, list(unique)
            self._cache, self._cached_size = cache, 0
        for batch in _batches(unseen, self.batch_characters):
            pieces = self._encode(batch)
            cache.update(zip(batch, pieces, strict=True))
            self._cached_size += sum(map(len, batch)) + sum(map(len, pieces))
        return list(map(cache.__getitem__, words))

    def encode_text(self, text: str) -> TextPieces:
        """Returns the pieces of a whole text; a word is what stands between blanks."""
        words = [(match[0], match.span()) for match in re.finditer(r"\S+", text)]
        pieces = self.encode([word for word, _ in words])
        numbers = np.repeat(np.arange(len(words)), list(map(len, pieces)))
        places = np.array([place for _, place in words], np.int64).reshape(-1, 2)
        return TextPieces(list(chain(*pieces)), numbers, places[numbers])


def _batches(words: Sequence[str], max_characters: int) -> Iterator[Sequence[str]]:
    """Yields the words in batches of at most so many characters, or of one word.

    >>> list(_batches(["a", "bcd", "e", "f"], 3))
    [['a'], ['bcd'], ['e', 'f']]
    """
    start, size = 0, 0
    for end, word in enumerate(words):
        if size + len(word) > max_characters and end > start:
            yield words[start:end]
            start, size = end, 0
        size += len(word)
    if words:
        yield words[start:]


def add_tokens(backend: Any, tokens: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Adds tokens, by id, which are found in text unless they are special; returns their ids."""
    backend.encode_special_tokens = True
    for _, token in sorted(tokens.items(), key=lambda item: int(item[0])):
        flags = {name: value for name, value in token.items() if name != "id"}
        flags["special"] = token.get("special", False) or token["content"] in SPECIAL
        backend.add_tokens([AddedToken(**flags)])
    return {token.content: i for i, token in backend.get_added_tokens_decoder().items()}
