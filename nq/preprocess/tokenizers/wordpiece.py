"""BERT's WordPiece tokenizer, fed with a ``vocab.txt``."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer as Backend
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from nq.preprocess.tokenizers.base import Pieces, Tokenizer, marker_ids

FIRST_MARKER_ROW = 104
MAX_WORD_CHARS = 200  # the original's max_input_chars_per_word
_BRACKETED = re.compile(r"^\[[^ ]*\]$")


def read_vocab(path: Path) -> dict[str, int]:
    """Piece -> id (row - 1), added ones too; of a piece that stands twice the last row counts.

    Raises:
        ValueError: the file is no BERT vocabulary.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a BERT vocab.txt: {error}") from error
    if path.suffix == ".json":
        values = json.loads(text)
        added = {token["content"]: int(token["id"]) for token in values.get("added_tokens") or ()}
        vocab: dict[str, int] = values["model"]["vocab"] | added
    else:
        vocab = {row.strip(): i for i, row in enumerate(text.rstrip().split("\n"))}
    missing = [p for p in ("[CLS]", "[SEP]", "[UNK]", "[PAD]") if p not in vocab]
    if missing:
        raise ValueError(
            f"{path} lacks {', '.join(missing)}: expected a BERT vocab.txt with one piece a row"
        )
    return vocab


def _longest_word(path: Path) -> int:
    """Characters of the longest word that is not unknown; a ``tokenizer.json`` has its own."""
    if path.suffix != ".json":
        return MAX_WORD_CHARS
    model = json.loads(path.read_bytes())["model"]
    return int(model.get("max_input_chars_per_word", MAX_WORD_CHARS))


def _is_lowercase(vocab: Iterable[str]) -> bool:
    return all(piece == piece.lower() for piece in vocab if not piece.startswith("["))


class WordPieceTokenizer(Tokenizer):
    """WordPiece by the ``tokenizers`` library; uncased or cased.

    Args:
        vocab_file: BERT's ``vocab.txt``, with or without BERT-Joint's markers, or a
            ``tokenizer.json`` of this kind.
        lowercase: as the vocabulary is; by default where no piece of it has capitals.
        strip_accents: by default where ``lowercase``.
        tokenize_chinese_chars: each Chinese character is a word of its own.
    """

    def __init__(
        self,
        vocab_file: str | Path,
        lowercase: bool | None = None,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
    ) -> None:
        super().__init__()
        path = Path(vocab_file)
        vocab = read_vocab(path)
        self.files = {path.name if path.suffix == ".json" else "vocab.txt": path}
        self.lowercase = _is_lowercase(vocab) if lowercase is None else lowercase
        self.strip_accents, self.tokenize_chinese_chars = strip_accents, tokenize_chinese_chars
        self.cls_id, self.sep_id = vocab["[CLS]"], vocab["[SEP]"]
        self.pad_id, self.unk_id = vocab["[PAD]"], vocab["[UNK]"]
        unused = [i for p, i in vocab.items() if p.startswith("[unused") and i >= FIRST_MARKER_ROW]
        size = max(vocab.values()) + 1
        self._vocab, self._markers = vocab, marker_ids(vocab, sorted(unused), size)
        self.pieces = size
        self.vocab_size = max(size - 1, *self._markers.values()) + 1
        self._model = WordPiece(
            vocab, unk_token="[UNK]", max_input_chars_per_word=_longest_word(path)
        )
        self._backend = Backend(self._model)
        self._backend.normalizer = BertNormalizer(
            lowercase=self.lowercase,
            strip_accents=strip_accents,
            handle_chinese_chars=tokenize_chinese_chars,
        )
        self._backend.pre_tokenizer = BertPreTokenizer()

    def piece_id(self, piece: str) -> int | None:
        return self._vocab.get(piece)

    def marker_id(self, marker: str) -> int:
        return self._markers.get(marker, self.unk_id)

    def _encode(self, words: Sequence[str]) -> list[Pieces]:
        encodings = self._backend.encode_batch_fast(list(words), add_special_tokens=False)
        return [tuple(encoding.ids) for encoding in encodings]


class OriginalWordPieceTokenizer(WordPieceTokenizer):
    """The original's tokenizer to the letter, for the compatibility modes.

    It differs from the library where Unicode does: its own order of lower-casing and
    stripping accents, Python's character tables, private and unassigned characters kept.
    And a word that stands in brackets is looked up as a whole, markers, [SEP] and all,
    [UNK] if unknown (google-research/bert ``tokenization.py``, ``run_nq.py``).
    """

    def _encode(self, words: Sequence[str]) -> list[Pieces]:
        return [self._encode_word(word) for word in words]

    def _encode_word(self, word: str) -> Pieces:
        if _BRACKETED.match(word):
            found = self.piece_id(word)
            return (self._markers.get(word, self.unk_id) if found is None else found,)
        tokens = basic_tokens(word, self.lowercase)
        return tuple(piece.id for token in tokens for piece in self._model.tokenize(token))


def basic_tokens(text: str, lowercase: bool = True) -> list[str]:
    """BERT's BasicTokenizer: cleans, isolates CJK characters, lower-cases, splits punctuation.

    >>> basic_tokens("Müller's (2nd)")
    ['muller', "'", 's', '(', '2nd', ')']
    """
    cleaned = "".join(map(_clean_char, text))
    tokens = []
    for token in cleaned.split():
        plain = _without_accents(token.lower()) if lowercase else token
        tokens.append("".join(f" {c} " if _is_punctuation(c) else c for c in plain))
    return " ".join(tokens).split()


def _without_accents(text: str) -> str:
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(c for c in decomposed if unicodedata.category(c) != "Mn")


@lru_cache(maxsize=65536)
def _clean_char(char: str) -> str:
    """What cleaning leaves of a character: nothing, a blank, itself, itself between blanks."""
    if char in "\t\n\r":
        return " "
    category = unicodedata.category(char)
    if char in "\x00\ufffd" or category in ("Cc", "Cf"):
        return ""
    if category == "Zs":
        return " "
    return f" {char} " if _is_cjk(ord(char)) else char


def _is_cjk(code: int) -> bool:
    return (
        0x4E00 <= code <= 0x9FFF
        or 0x3400 <= code <= 0x4DBF
        or 0x20000 <= code <= 0x2A6DF
        or 0x2A700 <= code <= 0x2B73F
        or 0x2B740 <= code <= 0x2B81F
        or 0x2B820 <= code <= 0x2CEAF
        or 0xF900 <= code <= 0xFAFF
        or 0x2F800 <= code <= 0x2FA1F
    )


@lru_cache(maxsize=65536)
def _is_punctuation(char: str) -> bool:
    code = ord(char)
    ascii_mark = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
    return ascii_mark or unicodedata.category(char).startswith("P")
