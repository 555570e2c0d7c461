"""BERT's WordPiece tokenizer, from a ``vocab.txt`` or a ``tokenizer.json``."""

import re
import string
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from nq.formats.lines import check_whole
from nq.json_files import read_json_object
from nq.preprocess.tokenizers.base import SPELLINGS, Pieces, Tokenizer

WORD_CHARS = "max_input_chars_per_word"
MAX_WORD_CHARS = 200
BERT_OPTIONS = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
"""How text is prepared, by the names in ``tokenizer_config.json``."""
BERT_PIECES = {name: spellings[0] for name, spellings in SPELLINGS.items()}
MPNET_PIECES = {"cls_token": "<s>", "pad_token": "<pad>", "sep_token": "</s>"}
"""Those in the rows 0, 1 and 2, before the rows of a BERT."""
_BRACKETED = re.compile(r"^\[[^ ]*\]$")
_CJK = re.compile(
    "[\u4e00-\u9fff\u3400-\u4dbf\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f"
    "\U0002b820-\U0002ceaf\uf900-\ufaff\U0002f800-\U0002fa1f]"
)


def read_vocab(path: Path) -> dict[str, int]:
    """Reads a ``vocab.txt``: piece -> row from 0; of a repeated piece the last row counts."""
    content = path.read_bytes()
    check_whole(path, content)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a BERT vocab.txt: {error}") from error
    return {row.strip(): i for i, row in enumerate(text.rstrip().split("\n"))}


def wordpiece_backend(
    model: WordPiece, lowercase: bool, strip_accents: bool | None, chinese_chars: bool
) -> Backend:
    """Returns a tokenizer that prepares text as BERT does."""
    backend = Backend(model)
    backend.normalizer = BertNormalizer(
        lowercase=lowercase, strip_accents=strip_accents, handle_chinese_chars=chinese_chars
    )
    backend.pre_tokenizer = BertPreTokenizer()
    return backend


class WordPieceTokenizer(Tokenizer):
    """WordPiece of the ``tokenizers`` library, uncased or cased.

    Args:
        path: BERT's ``vocab.txt``, with or without BERT-Joint's markers, or a
            ``tokenizer.json`` of this kind.
        lowercase: whether text is lower-cased; by default if no piece has capitals.
        strip_accents: whether accents are removed; by default where ``lowercase``.
        max_word_chars: characters beyond which a word is unknown.
    """

    def __init__(
        self,
        path: Path,
        lowercase: bool | None = None,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        max_word_chars: int = MAX_WORD_CHARS,
        added: Iterable[AddedToken] = (),
    ) -> None:
        is_json = path.suffix == ".json"
        words = read_json_object(path)["model"]["vocab"] if is_json else read_vocab(path)
        if lowercase is None:
            lowercase = all(piece == piece.lower() for piece in words if not piece.startswith("["))
        self._model = WordPiece(words, unk_token="[UNK]", max_input_chars_per_word=max_word_chars)
        values = lowercase, strip_accents, tokenize_chinese_chars
        backend = wordpiece_backend(self._model, *values)
        options: dict[str, Any] = dict(zip(BERT_OPTIONS, values, strict=True))
        if not is_json and max_word_chars != MAX_WORD_CHARS:
            options[WORD_CHARS] = max_word_chars
        is_mpnet = [words.get(piece) for piece in MPNET_PIECES.values()] == [0, 1, 2]
        self.separators, self.segments = (2, False) if is_mpnet else (1, True)
        names = BERT_PIECES | (MPNET_PIECES if is_mpnet else {})
        files = {path.name if is_json else "vocab.txt": path}
        super().__init__(files, backend, added, names, options)


class OriginalWordPieceTokenizer(WordPieceTokenizer):
    """The original's tokenizer exactly, for the compatibility modes.

    It differs from the library in its handling of Unicode: its own order of lower-casing and
    removing accents, Python's character tables, private and unassigned characters kept. And a
    word in brackets is looked up as one piece, markers, [SEP] and all, [UNK] if unknown
    (google-research/bert ``tokenization.py``, ``run_nq.py``).
    """

    def _encode(self, words: Sequence[str]) -> list[Pieces]:
        return list(map(self._encode_word, words))

    def _encode_word(self, word: str) -> Pieces:
        if _BRACKETED.match(word):
            piece = self.piece_id(word)
            return (self.marker_id(word) if piece is None else piece,)
        tokens = basic_tokens(word, self.options["do_lower_case"] is True)
        return tuple(piece.id for token in tokens for piece in self._model.tokenize(token))


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


@lru_cache(maxsize=65536)
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


@lru_cache(maxsize=65536)
def _is_punctuation(char: str) -> bool:
    return char in string.punctuation or unicodedata.category(char).startswith("P")
