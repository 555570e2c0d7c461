"""SentencePiece tokenizer (unigram or BPE), fed with a ``.model`` file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sentencepiece import SentencePieceProcessor

from nq.preprocess.tokenizer import MARKERS, Pieces, Tokenizer, marker_ids


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
        pieces = {self._backend.id_to_piece(i): i for i in range(self._backend.get_piece_size())}
        self._pieces = pieces
        self._controls = {
            i for i in pieces.values() if self._backend.is_control(i) or self._backend.is_unused(i)
        }
        self.unk_id = self._backend.unk_id()
        self.cls_id = self._special("[CLS]", "<s>", "<cls>")
        self.sep_id = self._special("[SEP]", "</s>", "<sep>")
        pads = [pieces[p] for p in ("[PAD]", "<pad>") if p in pieces]
        self.pad_id = pads[0] if pads else max(self._backend.pad_id(), 0)
        first_free = len(pieces)
        self._markers = marker_ids(pieces, range(first_free, first_free + len(MARKERS)))
        self.vocab_size = max(first_free - 1, *self._markers.values()) + 1

    def _special(self, *spellings: str) -> int:
        for piece in spellings:
            if piece in self._pieces:
                return self._pieces[piece]
        raise ValueError(
            f"{self.files['spiece.model']} has none of the pieces {', '.join(spellings)}: train "
            "it with --control_symbols=[CLS],[SEP]"
        )

    def piece_id(self, piece: str) -> int | None:
        return self._pieces.get(piece)

    def marker_id(self, marker: str) -> int:
        return self._markers.get(marker, self.unk_id)

    def _encode(self, words: Sequence[str]) -> list[Pieces]:
        return [tuple(self._as_text(word)) for word in words]

    def _as_text(self, word: str) -> list[int]:
        """Pieces of a word; one that spells a marker of the model is taken apart first."""
        ids = self._backend.encode(word)
        if not any(i in self._controls or self._is_marker(i) for i in ids):
            return list(ids)
        return [i for char in word for i in self._backend.encode(char)]

    def _is_marker(self, piece: int) -> bool:
        return self._backend.id_to_piece(piece) in self._markers
