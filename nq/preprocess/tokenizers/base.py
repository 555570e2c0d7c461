"""words -> pieces, behind one small interface.

A tokenizer takes single words and gives each its piece ids, so that every piece belongs to one
word and every word to one document token. Markers such as ``[Q]`` are looked up by name with
``marker_id`` only: text that spells ``[SEP]`` stays text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer as Backend
from tokenizers.models import WordPiece

from nq.errors import check_argument
from nq.json_files import dump_json
from nq.records import IntArray

CONFIG = "tokenizer_config.json"
FIRST_MARKER_ROW = 104
Pieces = tuple[int, ...]

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
SPELLINGS = {
    "cls_token": ("[CLS]", "<s>", "<cls>"),
    "sep_token": ("[SEP]", "</s>", "<sep>"),
    "pad_token": ("[PAD]", "<pad>"),
    "unk_token": ("[UNK]", "<unk>"),
}
"""The pieces that a vocabulary needs, by their names in transformers; the first one counts."""
SPECIAL = {"[MASK]", "<mask>"}.union(MARKERS, *SPELLINGS.values())
"""The special pieces of all kinds of vocabularies; text never becomes one of them."""


@dataclass(frozen=True, slots=True, eq=False)
class TextPieces:
    """The P pieces of a text: the number of the word of each, and its characters, ``[P, 2]``."""

    ids: Sequence[int]
    words: IntArray
    chars: IntArray


class Tokenizer:
    """Maps words to piece ids, by the ``tokenizers`` library.

    It may be used from several threads at once.

    Attributes:
        path: the file it was loaded from.
        files: the content of its file, by the name in a model folder.
        options: its ``tokenizer_config.json`` in a model folder.
        vocab_size: number of ids, markers included.
        pieces: number of ids without the markers that follow its last piece.
        separators: number of separators between question and page: one for BERT, two for
            RoBERTa, XLM-RoBERTa and MPNet.
        segments: whether question and page are different segments, as for BERT.
        max_cached_size: characters and pieces of words in memory after which all are forgotten.
        batch_characters: characters of words after which a call of the library ends, because its
            results take much memory.
        origin: the folder or file from which ``load_tokenizer`` made it.
        load_again: makes it in another process, given its digest.
    """

    origin: Path
    load_again: Callable[[str], Tokenizer]
    max_cached_size: int = 10_000_000
    batch_characters: int = 1 << 18

    def __init__(
        self,
        path: Path,
        files: Mapping[str, bytes],
        backend: Backend,
        options: Mapping[str, Any],
    ) -> None:
        """Finds the special pieces and assigns ids to the markers.

        Added tokens are found in text unless they are special. BERT-Joint renamed the uncased BERT
        vocabulary's [unused] rows 104 to 310, so that a plain vocabulary with those rows gives the
        same markers. Of a vocabulary that neither names the markers nor has enough unused rows,
        they get the ids after the last piece, and the embedding table needs those rows.

        Args:
            options: may have spellings of special pieces, by the keys of ``SPELLINGS``.
        """
        self.path = path
        self.files = files
        self.options = options
        backend.encode_special_tokens = True
        self._backend = backend
        self._ids = backend.get_vocab()
        self.cls_id, self.sep_id, self.pad_id, self.unk_id = map(self._id_of, SPELLINGS)
        self._read_layout()
        added = backend.get_added_tokens_decoder().values()
        special = SPECIAL.union(token.content for token in added if token.special)
        self._specials = {i for piece, i in self._ids.items() if piece in special} - {self.unk_id}
        # Each word is encoded as inside a text, on which pieces of WordPiece do not depend.
        self._word_before = "" if isinstance(backend.model, WordPiece) else "a "
        self._before = len(backend.encode(self._word_before.strip(), add_special_tokens=False).ids)
        self.pieces = max(self._ids.values()) + 1
        self._markers = {marker: self._ids[marker] for marker in MARKERS if marker in self._ids}
        if not self._markers:
            rows = (i for piece, i in self._ids.items() if piece.startswith("[unused"))
            free: Sequence[int] = sorted(i for i in rows if i >= FIRST_MARKER_ROW)
            if len(free) < len(MARKERS):
                free = range(self.pieces, self.pieces + len(MARKERS))
            self._markers = dict(zip(MARKERS, free, strict=False))
        self.vocab_size = max(self.pieces - 1, *self._markers.values()) + 1
        self._cache: dict[str, Pieces] = {}
        self._cached_size = 0

    def _id_of(self, name: str) -> int:
        """Returns the id of a special piece, whose spelling may be a text or an object."""
        token = self.options.get(name)
        spelling = token.get("content") if isinstance(token, dict) else token
        spellings = (spelling,) if spelling else SPELLINGS[name]
        for piece in spellings:
            check_argument(isinstance(piece, str), name, token, "a text")
            if piece in self._ids:
                return self._ids[piece]
        names = ", ".join(spellings)
        raise ValueError(
            f"{self.path} has none of the pieces {names}: train the tokenizer with one"
        )

    def _read_layout(self) -> None:
        """Reads from the pieces of a pair of texts what is before and between them, if anything."""
        is_roberta = self._ids.get("<s>") == self.cls_id
        self.separators = 2 if is_roberta else 1
        self.segments = not is_roberta
        pair = self._backend.encode("a", "a")
        texts = pair.sequence_ids
        if texts[:1] == [None] and 1 in texts:
            second = texts.index(1)
            separators = texts[1:second].count(None)
            if separators:  # a template for single texts has none
                self.cls_id = pair.ids[0]
                self.sep_id = pair.ids[second - 1]
                self.separators = separators
                self.segments = pair.type_ids[second] == 1

    @cached_property
    def digest(self) -> str:
        """A SHA-256 over the tokenizer's kind, its options and the content of its file."""
        total = hashlib.sha256(type(self).__name__.encode())
        for name, content in self.files.items():
            total.update(name.encode() + content)
        total.update(json.dumps(self.options).encode())
        return total.hexdigest()

    def save(self, folder: Path) -> None:
        """Writes the files that ``load_tokenizer`` needs into a folder."""
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        dump_json(folder / CONFIG, self.options)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.load_again, (self.digest,)

    def _ids_of(self, texts: Sequence[str]) -> list[Pieces]:
        inside = [self._word_before + text for text in texts]
        encodings = self._backend.encode_batch_fast(inside, add_special_tokens=False)
        return [
            tuple(encoding.ids[self._before :]) if text else ()
            for text, encoding in zip(texts, encodings, strict=True)
        ]

    def _ids_of_characters(self, text: str) -> list[Pieces]:
        """Returns the ids of each character, none of them a special piece."""
        return [
            tuple(self.unk_id if i in self._specials else i for i in ids)
            for ids in self._ids_of(text)
        ]

    def _encode(self, words: Sequence[str]) -> list[Pieces]:
        """Returns the pieces of each word, character by character if it spells a special piece."""
        texts = [word if word.strip() else "" for word in words]
        return [
            ids if self._specials.isdisjoint(ids) else tuple(chain(*self._ids_of_characters(text)))
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
        cache = self._cache
        unique = set(words)
        unseen = [word for word in unique if word not in cache]
        if unseen and self._cached_size > self.max_cached_size:
            # A new one, because another thread may be reading the old one.
            cache = {}
            unseen = list(unique)
            self._cache = cache
            self._cached_size = 0
        for batch in _batches(unseen, self.batch_characters):
            pieces = self._encode(batch)
            cache.update(zip(batch, pieces, strict=True))
            self._cached_size += sum(map(len, batch)) + sum(map(len, pieces))
        return list(map(cache.__getitem__, words))

    def encode_text(self, text: str) -> TextPieces:
        """Returns the pieces of a whole text, those of the library except that none is special."""
        encoding = self._backend.encode(text, add_special_tokens=False)
        ids = encoding.ids
        words = encoding.word_ids
        chars = encoding.offsets
        for i in reversed([i for i, piece in enumerate(ids) if piece in self._specials]):
            start, end = chars[i]
            pieces = self._ids_of_characters(text[start:end])
            ids[i : i + 1] = chain(*pieces)
            words[i : i + 1] = [words[i]] * sum(map(len, pieces))
            chars[i : i + 1] = [(start + n, start + n + 1) for n, p in enumerate(pieces) for _ in p]
        return TextPieces(ids, np.array(words, np.int64), np.array(chars, np.int64).reshape(-1, 2))


def _batches(words: Sequence[str], max_characters: int) -> Iterator[Sequence[str]]:
    """Yields the words in batches of at most ``max_characters``, or of one word.

    >>> list(_batches(["a", "bcd", "e", "f"], 3))
    [['a'], ['bcd'], ['e', 'f']]
    """
    start = 0
    size = 0
    for end, word in enumerate(words):
        if size + len(word) > max_characters and end > start:
            yield words[start:end]
            start = end
            size = 0
        size += len(word)
    if words:
        yield words[start:]
