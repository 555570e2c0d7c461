"""SentencePiece tokenizer (unigram or BPE), fed with a ``.model`` file."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path

from sentencepiece import SentencePieceProcessor

from nq.preprocess.tokenizers.base import SPECIAL, Pieces, Tokenizer, marker_ids

FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")
FAIRSEQ_FILE = "sentencepiece.bpe.model"
KNOWN_FILES = (FAIRSEQ_FILE, "sentencepiece.model")  # XLM-RoBERTa's and RemBERT's


class SentencePieceTokenizer(Tokenizer):
    """SentencePiece; each word is encoded on its own, so no piece spans two words.

    Markers that the model holds as user-defined pieces keep their ids. If it holds none,
    they get the ids after its last piece, and the embedding table needs those rows.

    A file called ``sentencepiece.bpe.model`` is an XLM-RoBERTa's: its ids are those of the
    file and one, behind ``<s> <pad> </s> <unk>``, and ``<mask>`` comes last.

    Args:
        model_file: a trained SentencePiece ``.model`` with [CLS] and [SEP] (or <s>, </s>).
        lowercase: ALBERT's: words are lower-cased first.
        keep_accents: else ALBERT's: accents are taken off first; by default as ``lowercase``
            says.
    """

    def __init__(
        self,
        model_file: str | Path,
        lowercase: bool | None = None,
        keep_accents: bool | None = None,
    ) -> None:
        super().__init__()
        path = Path(model_file)
        fairseq = path.name == FAIRSEQ_FILE
        self._file = path
        self.files = {path.name if path.name in KNOWN_FILES else "spiece.model": path}
        self.lowercase = lowercase
        self.keep_accents = not lowercase if keep_accents is None else keep_accents
        try:
            self._backend = SentencePieceProcessor(model_file=str(path))
        except (OSError, RuntimeError) as error:
            raise ValueError(f"{path} is not a SentencePiece model: {error}") from error
        size = self._backend.get_piece_size()
        self._shift = int(fairseq)
        ids = {self._backend.id_to_piece(i): i + self._shift for i in range(size)}
        if fairseq:
            self.separators, self.segments = 2, False
            size += 2
            ids |= {**{piece: i for i, piece in enumerate(FAIRSEQ)}, "<mask>": size - 1}
        self._pieces = ids
        self.unk_id = ids["<unk>"] if fairseq else self._backend.unk_id()
        self.cls_id = self._id_of("[CLS]", "<s>", "<cls>")
        self.sep_id = self._id_of("[SEP]", "</s>", "<sep>")
        pads = [ids[p] for p in ("[PAD]", "<pad>") if p in ids]
        self.pad_id = pads[0] if pads else max(self._backend.pad_id(), 0)
        self._markers = marker_ids(ids, (), size)
        self.pieces = size
        self.vocab_size = max(size - 1, *self._markers.values()) + 1
        self._specials = {i for p, i in ids.items() if self._is_special(p, i)}

    def _id_of(self, *spellings: str) -> int:
        for piece in spellings:
            if piece in self._pieces:
                return self._pieces[piece]
        raise ValueError(
            f"{self._file} has none of the pieces {', '.join(spellings)}: train "
            "it with --control_symbols=[CLS],[SEP]"
        )

    def _is_special(self, piece: str, i: int) -> bool:
        """Whether a piece, user-defined ones too, has a meaning that text must not have."""
        if i == self.unk_id:
            return False
        if self._shift and i < len(FAIRSEQ):
            return True
        raw = i - self._shift
        if not 0 <= raw < self._backend.get_piece_size():
            return True
        if self._backend.is_unknown(raw) or self._backend.is_byte(raw):
            return False
        return self._backend.is_control(raw) or piece in SPECIAL

    def piece_id(self, piece: str) -> int | None:
        return self._pieces.get(piece)

    def marker_id(self, marker: str) -> int:
        return self._markers.get(marker, self.unk_id)

    def _encode(self, words: Sequence[str]) -> list[Pieces]:
        return [self._as_text(word) if word.strip() else () for word in words]

    def _as_text(self, word: str) -> Pieces:
        """Pieces of a word; one that spells a special piece is taken apart to characters."""
        ids = self._ids(self._plain(word))
        if self._specials.isdisjoint(ids):
            return ids
        return tuple(i for char in word for i in self._ids(self._plain(char)))

    def _ids(self, text: str) -> Pieces:
        ids: list[int] = self._backend.encode(text)
        if not self._shift:
            return tuple(ids)
        unknown = self._backend.unk_id()
        return tuple(self.unk_id if i == unknown else i + self._shift for i in ids)

    def _plain(self, word: str) -> str:
        """The word as ALBERT wants it, where it does."""
        if self.lowercase is not None:
            word = word.replace("``", '"').replace("''", '"')
        if not self.keep_accents:
            decomposed = unicodedata.normalize("NFKD", word)
            word = "".join(c for c in decomposed if not unicodedata.combining(c))
        return word.lower() if self.lowercase else word
