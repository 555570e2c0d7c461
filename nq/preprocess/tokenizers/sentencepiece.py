"""SentencePiece tokenizer (unigram or BPE), from a ``.model`` file."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path

from sentencepiece import SentencePieceProcessor

from nq.preprocess.tokenizers.base import SPECIAL, Pieces, Tokenizer

FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")
FAIRSEQ_FILE = "sentencepiece.bpe.model"
KNOWN_FILES = (FAIRSEQ_FILE, "sentencepiece.model")  # of XLM-RoBERTa and of RemBERT


class SentencePieceTokenizer(Tokenizer):
    """SentencePiece; each word is encoded on its own, so no piece spans two words.

    A file called ``sentencepiece.bpe.model`` is an XLM-RoBERTa's: its ids are those of the file
    plus one, after ``<s> <pad> </s> <unk>``, and ``<mask>`` comes last.

    Args:
        path: a trained SentencePiece ``.model`` with [CLS] and [SEP] (or <s>, </s>).
        lowercase: whether words are lower-cased first, as for ALBERT; ``None`` for a model that
            is not of ALBERT's kind.
        keep_accents: whether accents are kept; by default where ``lowercase`` is not set.
    """

    missing_piece_hint = ": train it with --control_symbols=[CLS],[SEP]"

    def __init__(
        self, path: Path, lowercase: bool | None = None, keep_accents: bool | None = None
    ) -> None:
        keep_accents = not lowercase if keep_accents is None else keep_accents
        self.options = {"do_lower_case": lowercase, "keep_accents": keep_accents}
        self._backend = SentencePieceProcessor(model_file=str(path))
        size = self._backend.get_piece_size()
        fairseq = path.name == FAIRSEQ_FILE
        self._shift = int(fairseq)
        ids = {self._backend.id_to_piece(i): i + self._shift for i in range(size)}
        if fairseq:
            self.separators, self.segments = 2, False
            ids |= {**{piece: i for i, piece in enumerate(FAIRSEQ)}, "<mask>": size + 1}
        name = path.name if path.name in KNOWN_FILES else "spiece.model"
        super().__init__({name: path}, ids)
        self.unk_id = ids["<unk>"] if fairseq else self._backend.unk_id()
        self.pad_id = ids.get("[PAD]", ids.get("<pad>", max(self._backend.pad_id(), 0)))
        self._specials = {i for piece, i in ids.items() if self._is_special(piece, i)}

    def _is_special(self, piece: str, i: int) -> bool:
        """Returns whether a piece, user-defined ones too, may not come from text."""
        raw, backend = i - self._shift, self._backend
        if i == self.unk_id:
            return False
        if (self._shift and i < len(FAIRSEQ)) or not 0 <= raw < backend.get_piece_size():
            return True
        if backend.is_unknown(raw) or backend.is_byte(raw):
            return False
        return backend.is_control(raw) or piece in SPECIAL

    def _encode(self, words: Sequence[str]) -> list[Pieces]:
        return [self._as_text(word) if word.strip() else () for word in words]

    def _as_text(self, word: str) -> Pieces:
        """Returns the pieces of a word, character by character if it spells a special piece."""
        ids = self._ids_of(word)
        if self._specials.isdisjoint(ids):
            return ids
        return tuple(i for char in word for i in self._ids_of(char))

    def _ids_of(self, text: str) -> Pieces:
        lowercase = self.options["do_lower_case"]
        if lowercase is not None:
            text = text.replace("``", '"').replace("''", '"')
        if not self.options["keep_accents"]:
            decomposed = unicodedata.normalize("NFKD", text)
            text = "".join(c for c in decomposed if not unicodedata.combining(c))
        ids: list[int] = self._backend.encode(text.lower() if lowercase else text)
        if not self._shift:
            return tuple(ids)
        unknown = self._backend.unk_id()
        return tuple(self.unk_id if i == unknown else i + self._shift for i in ids)
