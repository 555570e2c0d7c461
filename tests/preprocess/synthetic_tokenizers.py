"""Small tokenizers of all kinds, as files of their folders."""

import json
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers, pre_tokenizers, processors, trainers
from transformers.utils import sentencepiece_model_pb2_new as messages

TEXT = [
    "The old bridge over the river is made of ice , isn't it ?",
    "Who walked 1,969 miles along Øresund in 2019 — and why?",
    "東京の川 は 深い。 Ünïcödé straße ﬁne ½ «quoted» e.g. U.S. [...] <b> 3.14%",
] * 30
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = sorted({*"".join(TEXT), *string.ascii_letters, *string.digits, *"[]<>/#'`."} - {" "})
WORDS = sorted({word for text in TEXT for word in text.split()})


def byte_level() -> Library:
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=ROBERTA, initial_alphabet=alphabet, show_progress=False
    )
    library.train_from_iterator(TEXT, trainer)
    library.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return library


def unigram() -> Library:
    library = Library(models.Unigram())
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    trainer = trainers.UnigramTrainer(
        vocab_size=150, special_tokens=ROBERTA, unk_token="<unk>", show_progress=False
    )
    library.train_from_iterator(TEXT, trainer)
    pair, special = "<s> $A </s> </s> $B </s>", [("<s>", 0), ("</s>", 2)]
    library.post_processor = processors.TemplateProcessing("<s> $A </s>", pair, special)
    return library


def cased_wordpiece() -> Library:
    library = Library(models.WordPiece(unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=False)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=BERT, show_progress=False)
    library.train_from_iterator(TEXT, trainer)
    return library


KINDS = {"byte-level": byte_level, "unigram": unigram, "wordpiece": cased_wordpiece}


def vocabulary(special: Sequence[str] = BERT, lowercase: bool = True) -> list[str]:
    """Returns the vocabulary of a WordPiece."""
    plain = [*WORDS, *LETTERS]
    if lowercase:
        plain = [piece.lower() for piece in plain]
    return list(dict.fromkeys([*special, *plain, *(f"##{piece}" for piece in plain)]))


def spiece(special: Sequence[str] = BERT, characters: bytes = b"") -> bytes:
    """Returns a unigram of SentencePiece, whose second piece stands for unknown ones."""
    model = messages.ModelProto()
    kinds = model.SentencePiece.Type
    for i, piece in enumerate(special):
        model.pieces.add(piece=piece, type=kinds.UNKNOWN if i == 1 else kinds.CONTROL)
    for piece in ("\u2581", *LETTERS, *(f"\u2581{word}" for word in WORDS)):
        model.pieces.add(piece=piece, score=-len(piece))
    model.trainer_spec.unk_id = 1
    model.normalizer_spec.precompiled_charsmap = characters
    content: bytes = model.SerializeToString()
    return content


def write_folder(folder: Path, files: Mapping[str, Any]) -> Path:
    """Writes files: bytes, the lines of a text, or JSON."""
    for name, value in files.items():
        if isinstance(value, Library):
            value.save(str(folder / name))
        elif isinstance(value, bytes):
            (folder / name).write_bytes(value)
        else:
            is_text = isinstance(value, list)
            text = "".join(f"{line}\n" for line in value) if is_text else json.dumps(value)
            (folder / name).write_text(text, encoding="utf-8")
    return folder
