"""SentencePiece tokenizer (unigram or BPE), fed with a ``.model`` file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from sentencepiece import SentencePieceProcessor

from nq.preprocess.tokenizer import Pieces, Tokenizer, marker_ids

_SPECIAL = re.compile(r"\[.+\]|<.+>")


class SentencePieceTokenizer(Tokenizer):
    """SentencePiece; each word is encoded on its own, so no piece spans two words.

    Markers that the model holds as user-defined pieces keep their ids. If it holds none,
    they get the ids after its last piece, and the embedding table needs those rows.

    Args:
        model_file: a trained SentencePiece ``.model`` with [CLS] and [SEP] (or <s>, </s>).
    """

    def __init__(self, model_file: str | Path) -> None:
        super().__init__()
        path = Path(model_file)
        self.files = {"spiece.model": path}
        try:
            self._backend = SentencePieceProcessor(model_file=str(path))
        except (OSError, RuntimeError) as error:
            raise ValueError(f"{path} is not a SentencePiece model: {error}") from error
        size = self._backend.get_piece_size()
        self._pieces = {self._backend.id_to_piece(i): i for i in range(size)}
        self.unk_id = self._backend.unk_id()
        self.cls_id = self._id_of("[CLS]", "<s>", "<cls>")
        self.sep_id = self._id_of("[SEP]", "</s>", "<sep>")
        pads = [self._pieces[p] for p in ("[PAD]", "<pad>") if p in self._pieces]
        self.pad_id = pads[0] if pads else max(self._backend.pad_id(), 0)
        self._markers = marker_ids(self._pieces, (), size)
        self.vocab_size = max(size - 1, *self._markers.values()) + 1
        self._specials = {i for p, i in self._pieces.items() if self._is_special(p, i)}

    def _id_of(self, *spellings: str) -> int:
        for piece in spellings:
            if piece in self._pieces:
                return self._pieces[piece]
        raise ValueError(
            f"{self.files['spiece.model']} has none of the pieces {', '.join(spellings)}: train "
            "it with --control_symbols=[CLS],[SEP]"
        )

    def _is_special(self, piece: str, i: int) -> bool:
        """Whether a piece, user-defined ones too, has a meaning that text must not have."""
        if self._backend.is_unknown(i) or self._backend.is_byte(i):
            return False
        return self._backend.is_control(i) or bool(_SPECIAL.fullmatch(piece))

    def piece_id(self, piece: str) -> int | None:
        return self._pieces.get(piece)

    def marker_id(self, marker: str) -> int:
        return self._markers.get(marker, self.unk_id)

    def _encode(self, words: Sequence[str]) -> list[Pieces]:
        return [self._as_text(word) if word.strip() else () for word in words]

    def _as_text(self, word: str) -> Pieces:
        """Pieces of a word; one that spells a special piece is taken apart to characters."""
        ids: list[int] = self._backend.encode(word)
        if self._specials.isdisjoint(ids):
            return tuple(ids)
        return tuple(i for char in word for i in self._backend.encode(char))
