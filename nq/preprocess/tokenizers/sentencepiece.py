"""SentencePiece tokenizer (unigram or BPE), from a ``.model`` file."""

import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from sentencepiece import SentencePieceProcessor

from nq.preprocess.tokenizers.base import SPECIAL, Pieces, TextPieces, Tokenizer

FAIRSEQ, CAMEMBERT = (1, ""), (4, "NOTUSED")
"""By how much ids exceed those of the file, and what ends the names of unused pieces before it."""
FAIRSEQ_FILE, DEBERTA_FILE = "sentencepiece.bpe.model", "spm.model"
KNOWN_FILES = (FAIRSEQ_FILE, DEBERTA_FILE, "sentencepiece.model")  # the last is RemBERT's


class SentencePieceTokenizer(Tokenizer):
    """SentencePiece; each word is encoded on its own, so no piece spans two words.

    A file called ``sentencepiece.bpe.model`` is an XLM-RoBERTa's: its ids are those of the file
    plus one, after ``<s> <pad> </s> <unk>``, and ``<mask>`` comes last. A CamemBERT's are those of
    the file plus four, because its ``<s>`` and ``</s>`` are those of the file. A file called
    ``spm.model`` is a DeBERTa's: ``[MASK]`` follows its pieces.

    Args:
        path: a trained SentencePiece ``.model`` with [CLS] and [SEP] (or <s>, </s>).
        lowercase: whether words are lower-cased first, as for ALBERT; ``None`` for a model that
            is not of ALBERT's kind.
        keep_accents: whether accents are kept; by default where ``lowercase`` is not set.
        family: ``model_type`` of the model that it is for, which tells a CamemBERT.
    """

    def __init__(
        self,
        path: Path,
        lowercase: bool | None = None,
        keep_accents: bool | None = None,
        family: str = "",
    ) -> None:
        keep_accents = not lowercase if keep_accents is None else keep_accents
        self.options = {"do_lower_case": lowercase, "keep_accents": keep_accents}
        self._backend = SentencePieceProcessor(model_file=str(path))
        size = self._backend.get_piece_size()
        fairseq, self._is_deberta = path.name == FAIRSEQ_FILE, path.name == DEBERTA_FILE
        self._shift, unused = (
            (CAMEMBERT if family == "camembert" else FAIRSEQ) if fairseq else (0, "")
        )
        ids = {self._backend.id_to_piece(i): i + self._shift for i in range(size)}
        if fairseq:
            self.separators, self.segments = 2, False
            first = f"<s>{unused}", "<pad>", f"</s>{unused}", "<unk>"
            ids |= {piece: i for i, piece in enumerate(first)} | {"<mask>": size + self._shift}
        elif self._is_deberta:
            ids.setdefault("[MASK]", size)
        name = path.name if path.name in KNOWN_FILES else "spiece.model"
        super().__init__({name: path}, ids)
        self.unk_id = ids["<unk>"] if fairseq else self._backend.unk_id()
        self.pad_id = ids.get("[PAD]", ids.get("<pad>", max(self._backend.pad_id(), 0)))
        controls = {i for i in range(size) if self._backend.is_control(i)}
        self._specials = {
            i for piece, i in ids.items() if piece in SPECIAL or i - self._shift in controls
        } - {self.unk_id}

    def _ids_of(self, texts: Sequence[str]) -> list[Pieces]:
        unknown = self._backend.unk_id()
        return [  # one by one, because the library encodes a list in threads of its own
            tuple(
                self.unk_id if i == unknown else i + self._shift
                for i in self._backend.encode(self._prepared(text))
            )
            for text in texts
        ]

    def encode_text(self, text: str) -> TextPieces:
        """See ``Tokenizer.encode_text``; pieces of a word that is prepared are all of the word."""
        whole = super().encode_text(text)
        chars, edges = whole.chars.copy(), np.flatnonzero(np.diff(whole.words, prepend=-1)).tolist()
        for first, end in pairwise([*edges, len(whole.ids)]):
            start, behind = whole.chars[first].tolist()
            word = text[start:behind]
            places = self._backend.encode(self._prepared(word), out_type="offset_mapping")[
                "offsets"
            ]
            if self._prepared(word) == word and len(places) == end - first:
                chars[first:end] = start + np.array(places)
        return replace(whole, chars=chars)

    def _prepared(self, text: str) -> str:
        lowercase = self.options["do_lower_case"]
        if lowercase is not None and not self._is_deberta:
            text = text.replace("``", '"').replace("''", '"')
        if not self.options["keep_accents"]:
            decomposed = unicodedata.normalize("NFKD", text)
            text = "".join(c for c in decomposed if not unicodedata.combining(c))
        return text.lower() if lowercase else text
