"""Tokenizers that the ``tokenizers`` library describes: byte-level BPE, unigram, BPE.

They are read from a ``tokenizer.json``, or from RoBERTa's ``vocab.json`` and ``merges.txt``. The
parts that find special pieces in text or add them around it are left out: text that spells
``</s>`` stays text.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from unicodedata import normalize

from tokenizers import Tokenizer as Backend
from tokenizers import processors
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from nq.preprocess.tokenizers.base import (
    SPECIAL,
    Pieces,
    TextPieces,
    Tokenizer,
    read_tokenizer_json,
)

VOCAB, MERGES = "vocab.json", "merges.txt"
MAX_EXPANSION, EXPANSIONS = 64, {"ByteLevel": 4.0, "BertNormalizer": 3.0}
"""Characters for one of a text, of all steps and of single ones; XLM-RoBERTa's map has up to 18."""
PATTERN, KNOWN_PATTERN = re.compile(r'"Regex": ("(?:[^"\\]|\\.)*")'), " {2,}"


class LibraryTokenizer(Tokenizer):
    """A tokenizer of the ``tokenizers`` library; each word is encoded as one after a blank."""

    def __init__(self, path: Path) -> None:
        files, added, template = {path.name: path}, dict[str, int](), None
        if path.name == VOCAB:
            files[MERGES] = path.with_name(MERGES)
            if not files[MERGES].is_file():
                raise FileNotFoundError(f"{path} has no {MERGES} beside it: copy it there")
            self._backend = Backend(BPE.from_file(str(path), str(files[MERGES])))
            self._backend.pre_tokenizer = ByteLevel(add_prefix_space=True)
        else:
            values, added = read_tokenizer_json(path)
            template = values.get("post_processor")
            text = json.dumps(_for_words(values))
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
        ids = self._backend.get_vocab(with_added_tokens=False) | added
        super().__init__(files, ids)
        self.pad_id = self._id_of("[PAD]", "<pad>")
        self.unk_id = self._id_of("[UNK]", "<unk>")
        self.separators, self.segments = self._separators(template)
        special = SPECIAL | added.keys()
        self._specials = {i for piece, i in ids.items() if piece in special} - {self.unk_id}

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
        encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [tuple(encoding.ids) for encoding in encodings]

    def encode_text(self, text: str) -> TextPieces:
        return TextPieces.of(self._of_texts.encode(text, add_special_tokens=False))

    @cached_property
    def _of_texts(self) -> Backend:
        """The tokenizer of whole texts: the first word need not be one after a blank.

        The blank before a word is none of its characters.
        """
        path, backend = next(iter(self.files.values())), Backend(self._backend.model)
        backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
        if path.name != VOCAB:
            backend = Backend.from_str(json.dumps(_for_texts(read_tokenizer_json(path)[0])))
        backend.post_processor = processors.ByteLevel(trim_offsets=True)
        return backend


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


def _for_texts(values: dict[str, Any]) -> dict[str, Any]:
    """Returns a ``tokenizer.json`` that neither finds nor adds special pieces."""
    others = ("post_processor", "decoder", "truncation", "padding")
    return {**values, "added_tokens": [], **dict.fromkeys(others)}


def _for_words(values: dict[str, Any]) -> dict[str, Any]:
    """Returns a ``tokenizer.json`` for single words, each as one after a blank."""
    pre_tokenizer = values.get("pre_tokenizer") or {}
    for part in pre_tokenizer.get("pretokenizers", [pre_tokenizer]):
        if part.get("type") == "ByteLevel":
            part["add_prefix_space"] = True
        elif part.get("prepend_scheme") in ("first", "never"):  # of a Metaspace
            part["prepend_scheme"] = "always"
    return _for_texts(values)
