"""BERT's WordPiece, from a ``vocab.txt``, and the tokenizer of the compatibility modes."""

import re
import string
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from nq.errors import check_argument
from nq.preprocess.tokenizers.base import Pieces, Tokenizer

MAX_WORD_CHARS = 200
"""Characters of a word beyond which it is unknown, as in the original."""
BERT_OPTIONS = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
"""How text is prepared, by the names in ``tokenizer_config.json``."""
MPNET_PIECES = {"cls_token": "<s>", "pad_token": "<pad>", "sep_token": "</s>"}
"""Those in the rows 0, 1 and 2, before the rows of a BERT."""
_BRACKETED = re.compile(r"^\[[^ ]*\]$")
_CJK = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b820-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f]"
)


def read_vocab(path: Path, content: bytes) -> dict[str, int]:
    """Reads a ``vocab.txt``: piece -> row from 0; of a repeated piece the last row counts."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a BERT vocab.txt: {error}") from error
    return {row.strip(): i for i, row in enumerate(text.rstrip().split("\n"))}


def read_wordpiece(path: Path, content: bytes, config: Mapping[str, Any]) -> Tokenizer:
    """Returns the WordPiece of a ``vocab.txt``, with or without BERT-Joint's markers.

    ``config`` has the values of ``tokenizer_config.json``. By default text is lower-cased if no
    piece has capitals, and accents are removed where it is lower-cased.
    """
    vocab = read_vocab(path, content)
    options: dict[str, Any] = {name: config.get(name) for name in BERT_OPTIONS}
    for name, value in options.items():
        is_flag = value is None or isinstance(value, bool)
        check_argument(is_flag, f"{name} of the tokenizer", value, "true, false or null")
    if options["do_lower_case"] is None:
        plain = (piece for piece in vocab if not piece.startswith("["))
        options["do_lower_case"] = all(piece == piece.lower() for piece in plain)
    if options["tokenize_chinese_chars"] is None:
        options["tokenize_chinese_chars"] = True
    lowercase, strip_accents, chinese_chars = options.values()
    model = WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=MAX_WORD_CHARS)
    backend = Backend(model)
    backend.normalizer = BertNormalizer(
        lowercase=lowercase,
        strip_accents=strip_accents,
        handle_chinese_chars=chinese_chars,
    )
    backend.pre_tokenizer = BertPreTokenizer()
    if [vocab.get(piece) for piece in MPNET_PIECES.values()] == [0, 1, 2]:
        options |= MPNET_PIECES
    return Tokenizer(path, {"vocab.txt": content}, backend, options)


class OriginalTokenizer(Tokenizer):
    """The original's tokenizer exactly, for the compatibility modes.

    It differs from the library in its handling of Unicode: its own order of lower-casing and
    removing accents, Python's character tables, private and unassigned characters kept. And a
    word in brackets is looked up as one piece, markers, [SEP] and all, [UNK] if unknown
    (google-research/bert ``tokenization.py``, ``run_nq.py``).
    """

    @classmethod
    def of(cls, tokenizer: Tokenizer, compat: str) -> Tokenizer:
        """Returns the original's tokenizer with the vocabulary of another one."""
        backend = tokenizer._backend
        if not isinstance(backend.model, WordPiece):
            raise ValueError(
                f"{tokenizer.path}: compat {compat!r} is for WordPiece only, use 'ours'"
            )
        backend.model.max_input_chars_per_word = MAX_WORD_CHARS
        return cls(tokenizer.path, tokenizer.files, backend, tokenizer.options)

    def _encode(self, words: Sequence[str]) -> list[Pieces]:
        return list(map(self._encode_word, words))

    def _encode_word(self, word: str) -> Pieces:
        if _BRACKETED.match(word):
            piece = self.piece_id(word)
            return (self.marker_id(word) if piece is None else piece,)
        lowercase = getattr(self._backend.normalizer, "lowercase", False)
        tokens = basic_tokens(word, lowercase)
        return tuple(piece.id for token in tokens for piece in self._backend.model.tokenize(token))


def basic_tokens(text: str, lowercase: bool = True) -> list[str]:
    """Returns the tokens of BERT's BasicTokenizer.

    It cleans the text, separates CJK characters, lower-cases and splits at punctuation.

    >>> basic_tokens("Müller's (2nd)")
    ['muller', "'", 's', '(', '2nd', ')']
    """
    cleaned = " ".join("".join(map(_clean_char, text)).split())
    if lowercase:
        decomposed = unicodedata.normalize("NFD", cleaned.lower())
        cleaned = "".join(c for c in decomposed if unicodedata.category(c) != "Mn")
    return "".join(f" {c} " if _is_punctuation(c) else c for c in cleaned).split()


def _clean_char(char: str) -> str:
    """Returns what replaces a character: nothing, a blank, itself, or itself between blanks."""
    if char in "\t\n\r":
        return " "
    category = unicodedata.category(char)
    if char in "\x00\ufffd" or category in ("Cc", "Cf"):
        return ""
    if category == "Zs":
        return " "
    return f" {char} " if _CJK.match(char) else char


def _is_punctuation(char: str) -> bool:
    return char in string.punctuation or unicodedata.category(char).startswith("P")
