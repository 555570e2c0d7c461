"""Tokenizers that the ``tokenizers`` library describes: byte-level BPE, unigram, BPE.

Read from a ``tokenizer.json``, or from RoBERTa's ``vocab.json`` and ``merges.txt``. What
finds special pieces in text, and what puts them around it, is left out: text that spells
``</s>`` stays text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from nq.preprocess.tokenizers.base import SPECIAL, Pieces, Tokenizer, marker_ids

VOCAB, MERGES = "vocab.json", "merges.txt"
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}


def read_json(path: Path) -> dict[str, Any]:
    """A ``tokenizer.json``.

    Raises:
        ValueError: it is something else.
    """
    try:
        values = json.loads(path.read_bytes())
        if not isinstance(values["model"]["vocab"], dict | list):
            raise TypeError("model.vocab is neither a list nor an object")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not a tokenizer.json with a model and its vocab: {error}"
        ) from error
    return dict(values)


class LibraryTokenizer(Tokenizer):
    """A tokenizer of the ``tokenizers`` library; each word is encoded on its own.

    Every word is encoded as one behind a blank. Markers get the ids after the last piece
    unless the vocabulary names them, and the embedding table needs those rows.

    Args:
        path: a ``tokenizer.json``, or a ``vocab.json`` with ``merges.txt`` beside it.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self._file = Path(path)
        self.files = {self._file.name: self._file}
        values = self._byte_level() if self._file.name == VOCAB else read_json(self._file)
        template = values.pop("post_processor", None)
        added = values.pop("added_tokens", None) or []
        values = {**values, "added_tokens": [], "post_processor": None}
        values |= {"truncation": None, "padding": None}
        _prefix_spaces(values.get("pre_tokenizer"))
        try:
            self._backend = Backend.from_str(json.dumps(values))
        except Exception as error:  # the library raises bare exceptions
            raise ValueError(f"{self._file} is not a tokenizer.json: {error}") from error
        self._pieces: dict[str, int] = self._backend.get_vocab(with_added_tokens=False)
        special = {token["content"]: int(token["id"]) for token in added}
        self._pieces |= special
        self.cls_id = self._id_of("[CLS]", "<s>", "<cls>")
        self.sep_id = self._id_of("[SEP]", "</s>", "<sep>")
        self.pad_id = self._id_of("[PAD]", "<pad>")
        self.unk_id = self._id_of("[UNK]", "<unk>")
        self.separators, self.segments = self._between(template)
        self.pieces = max(self._pieces.values()) + 1
        self._markers = marker_ids(self._pieces, (), self.pieces)
        self.vocab_size = max(self.pieces - 1, *self._markers.values()) + 1
        meant = SPECIAL | special.keys()
        self._specials = {i for p, i in self._pieces.items() if p in meant} - {self.unk_id}

    def _byte_level(self) -> dict[str, Any]:
        """RoBERTa's two files as one description."""
        merges = self._file.with_name(MERGES)
        if not merges.is_file():
            raise FileNotFoundError(f"{self._file} is there but no {MERGES} beside it: copy it")
        self.files[MERGES] = merges
        try:
            vocab = {**json.loads(self._file.read_bytes())}
            rows = merges.read_text(encoding="utf-8").split("\n")
            pairs = [row for row in rows if row.strip() and not row.startswith("#version")]
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self._file}, {MERGES}: no byte-level BPE: {error}") from error
        model = {"type": "BPE", "vocab": vocab, "merges": pairs}
        return {"version": "1.0", "model": model, "pre_tokenizer": {**BYTE_LEVEL}}

    def _id_of(self, *spellings: str) -> int:
        for piece in spellings:
            if piece in self._pieces:
                return self._pieces[piece]
        raise ValueError(f"{self._file} has none of the pieces {', '.join(spellings)}")

    def _between(self, template: dict[str, Any] | None) -> tuple[int, bool]:
        """Separators between question and page, and whether their segments differ."""
        if template and template["type"] == "TemplateProcessing":
            kinds = [next(iter(item.items())) for item in template["pair"]]
            first, second = (i for i, (kind, _) in enumerate(kinds) if kind == "Sequence")
            if second - first > 1:  # a template that was given for one text alone has none
                return second - first - 1, kinds[second][1]["type_id"] == 1
        like_roberta = self.cls_id == self._pieces.get("<s>")
        return (2, False) if like_roberta else (1, True)

    def piece_id(self, piece: str) -> int | None:
        return self._pieces.get(piece)

    def marker_id(self, marker: str) -> int:
        return self._markers.get(marker, self.unk_id)

    def _encode(self, words: Sequence[str]) -> list[Pieces]:
        plain = [word if word.strip() else "" for word in words]
        found = self._backend.encode_batch_fast(plain, add_special_tokens=False)
        return [
            ids if self._specials.isdisjoint(ids) else self._by_character(word)
            for word, ids in zip(plain, (tuple(e.ids) for e in found), strict=True)
        ]

    def _by_character(self, word: str) -> Pieces:
        found = self._backend.encode_batch_fast(list(word), add_special_tokens=False)
        return tuple(i for encoding in found for i in encoding.ids)


def _prefix_spaces(pre_tokenizer: dict[str, Any] | None) -> None:
    """Lets byte-level BPE put a blank before every word."""
    if not pre_tokenizer:
        return
    for part in pre_tokenizer.get("pretokenizers", [pre_tokenizer]):
        if part["type"] == "ByteLevel":
            part["add_prefix_space"] = True
        elif part["type"] == "Metaspace" and part.get("prepend_scheme") in ("first", "never"):
            part["prepend_scheme"] = "always"
