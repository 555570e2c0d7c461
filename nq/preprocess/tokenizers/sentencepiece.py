"""SentencePiece tokenizer (unigram or BPE), from a ``.model`` file."""

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

    def _prepared(self, text: str) -> str:
        lowercase = self.options["do_lower_case"]
        if lowercase is not None:
            text = text.replace("``", '"').replace("''", '"')
        if not self.options["keep_accents"]:
            decomposed = unicodedata.normalize("NFKD", text)
            text = "".join(c for c in decomposed if not unicodedata.combining(c))
        return text.lower() if lowercase else text
