"""Tokenizers that the ``tokenizers`` library describes: byte-level BPE, unigram, BPE.

They are read from a ``tokenizer.json``, or from RoBERTa's ``vocab.json`` and ``merges.txt``. The
parts that find special pieces in text or add them around it are left out: text that spells
``</s>`` stays text. Other tokens that were added to the vocabulary are found.
"""

import base64
import contextlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unicodedata import normalize

from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from nq.json_files import read_json_object
from nq.preprocess.tokenizers.base import SPECIAL, Pieces, TextPieces, Tokenizer, add_tokens

VOCAB, MERGES = "vocab.json", "merges.txt"
UNUSED = ("post_processor", "decoder", "truncation", "padding")
"""Parts of a ``tokenizer.json`` that add special pieces, or are for other tasks."""
WORD_BEFORE = "a"
"""A word before each one, whose pieces are left out: families differ in the blank between them."""
MAX_EXPANSION, EXPANSIONS = 64, {"ByteLevel": 4.0, "BertNormalizer": 3.0}
"""Characters for one of a text, of all steps and of single ones; XLM-RoBERTa's map has up to 18."""
PATTERN, KNOWN_PATTERN = re.compile(r'"Regex": ("(?:[^"\\]|\\.)*")'), " {2,}"


class LibraryTokenizer(Tokenizer):
    """A tokenizer of the ``tokenizers`` library; each word is encoded as one inside a text."""

    def __init__(self, path: Path, added: Mapping[str, Mapping[str, Any]]) -> None:
        files, template = {path.name: path}, None
        if path.name == VOCAB:
            files[MERGES] = path.with_name(MERGES)
            if not files[MERGES].is_file():
                raise FileNotFoundError(f"{path} has no {MERGES} beside it: copy it there")
            self._backend = Backend(BPE.from_file(str(path), str(files[MERGES])))
            self._backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
            self.options = {"added_tokens_decoder": added} if added else {}
        else:
            values = read_json_object(path)
            template = values.get("post_processor")
            text = json.dumps({**values, "added_tokens": [], **dict.fromkeys(UNUSED)})
            if unknown := {*map(json.loads, PATTERN.findall(text))} - {KNOWN_PATTERN}:
                raise ValueError(
                    f"{path} has the regular expression {min(unknown)!r:.80}, which may take for "
                    f"ever: expected {KNOWN_PATTERN!r} or none; choose another model"
                )
            longer = _expansion(values.get("normalizer")) * _expansion(values.get("pre_tokenizer"))
            if longer > MAX_EXPANSION:
                raise ValueError(
                    f"{path} may make a text {longer:.3g} times longer before it cuts it: expected "
                    f"at most {MAX_EXPANSION} times; choose another model"
                )
            self._backend = Backend.from_str(text)
        ids = self._backend.get_vocab(with_added_tokens=False) | add_tokens(self._backend, added)
        super().__init__(files, ids)
        self.pad_id = self._id_of("[PAD]", "<pad>")
        self.unk_id = self._id_of("[UNK]", "<unk>")
        self.separators, self.segments = self._separators(template)
        special = SPECIAL.union(t["content"] for t in added.values() if t.get("special"))
        self._specials = {i for piece, i in ids.items() if piece in special} - {self.unk_id}
        self._before = len(self._backend.encode(WORD_BEFORE).ids)

    def _separators(self, template: dict[str, Any] | None) -> tuple[int, bool]:
        """Returns the separators between question and page, and whether their segments differ."""
        if template and template["type"] == "TemplateProcessing":
            kinds = [next(iter(item.items())) for item in template["pair"]]
            first, second = (i for i, (kind, _) in enumerate(kinds) if kind == "Sequence")
            if second - first > 1:  # a template for single texts has no separator here
                return second - first - 1, kinds[second][1]["type_id"] == 1
        like_roberta = self.cls_id == self.piece_id("<s>")
        return (2, False) if like_roberta else (1, True)

    def _ids_of(self, texts: Sequence[str]) -> list[Pieces]:
        inside = [f"{WORD_BEFORE} {text}" for text in texts]
        encodings = self._backend.encode_batch_fast(inside, add_special_tokens=False)
        return [
            tuple(encoding.ids[self._before :]) if text else ()
            for text, encoding in zip(texts, encodings, strict=True)
        ]

    def encode_text(self, text: str) -> TextPieces:
        return TextPieces.of(self._backend.encode(text, add_special_tokens=False), text)


def _expansion(step: Any) -> float:
    """Returns how many times longer a step of a ``tokenizer.json`` may make a text.

    Forms of Unicode, which do so once, are not counted. A map of SentencePiece has the size of its
    trie, the trie, and the texts that replace characters, each with a zero behind it.
    """
    match step:
        case {"normalizers": parts} | {"pretokenizers": parts}:
            return math.prod(map(_expansion, parts))
        case {"type": "Replace", "content": content, "pattern": pattern}:
            replaced = pattern.get("String", "  ")  # or KNOWN_PATTERN
            return max(1.0, len(normalize("NFKD", content)) / max(1, len(replaced)))
        case {"type": "Prepend", "prepend": text}:
            return 1.0 + len(normalize("NFKD", text))
        case {"type": "Precompiled", "precompiled_charsmap": str(characters)}:
            with contextlib.suppress(ValueError):  # the library says what is damaged
                data = base64.b64decode(characters)
                texts = data[4 + int.from_bytes(data[:4], "little") :].decode().split("\0")
                return max(1.0, *(len(normalize("NFKD", text)) for text in texts))
        case {"type": str(kind)}:
            return EXPANSIONS.get(kind, 1.0)
    return 1.0
