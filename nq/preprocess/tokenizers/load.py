"""A folder's tokenizer, found by the files that lie in it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from nq.preprocess.tokenizers.base import Tokenizer

NAMES = (
    "vocab.txt",
    "vocab-nq.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "sentencepiece.model",
    "tokenizer.json",
    "vocab.json",
)

SPIECE_DEFAULTS = {
    "albert": {"do_lower_case": True, "keep_accents": False},
    "rembert": {"do_lower_case": False, "keep_accents": True},
}


def load_tokenizer(folder: str | Path, compat: str = "ours") -> Tokenizer:
    """The tokenizer whose files lie in ``folder`` (``folder`` may be such a file itself).

    Raises:
        FileNotFoundError: there is none; says which files would do.
        ValueError: one of its files is not what its name says, or does not know ``compat``.
    """
    path = Path(folder)
    if path.is_file():
        return _from_file(path, path.parent, compat)
    for name in NAMES:
        if (path / name).is_file():
            return _from_file(path / name, path, compat)
    raise FileNotFoundError(
        f"no tokenizer in {path}: expected vocab.txt (WordPiece) or spiece.model (SentencePiece), "
        "or tokenizer.json, or vocab.json and merges.txt (byte-level BPE)"
    )


def _from_file(path: Path, folder: Path, compat: str) -> Tokenizer:
    config = _tokenizer_config(folder)
    kind = _kind(path)
    if kind == "WordPiece":
        from nq.preprocess.tokenizers.wordpiece import (
            OriginalWordPieceTokenizer,
            WordPieceTokenizer,
        )

        chosen = WordPieceTokenizer if compat == "ours" else OriginalWordPieceTokenizer
        return chosen(path, **_cleaning(path, config))
    if compat != "ours":
        raise ValueError(f"{path}: compat {compat!r} is for WordPiece only, use 'ours'")
    if kind == "SentencePiece":
        from nq.preprocess.tokenizers.sentencepiece import SentencePieceTokenizer

        said = {name: value for name, value in config.items() if value is not None}
        says = {**SPIECE_DEFAULTS.get(_model_type(folder), {}), **said}
        return SentencePieceTokenizer(
            path, _flag(says, "do_lower_case"), _flag(says, "keep_accents")
        )
    from nq.preprocess.tokenizers.huggingface import LibraryTokenizer

    return LibraryTokenizer(path)


def _kind(path: Path) -> str:
    """WordPiece, SentencePiece, or what ``nq.preprocess.tokenizers.huggingface`` reads."""
    if path.suffix == ".model":
        return "SentencePiece"
    if path.suffix != ".json":
        return "WordPiece"
    if path.name == "vocab.json":
        return "any"
    from nq.preprocess.tokenizers.huggingface import read_json

    values = read_json(path)
    model = values["model"]
    untyped = "WordPiece" if "max_input_chars_per_word" in model else ""  # older files
    is_wordpiece = model.get("type", untyped) == "WordPiece"
    return "WordPiece" if is_wordpiece and _is_berts(values) else "any"


def _is_berts(values: dict[str, Any]) -> bool:
    """Whether text is prepared as BERT does it; no steps at all are taken for BERT's."""
    steps = {"normalizer": "BertNormalizer", "pre_tokenizer": "BertPreTokenizer"}
    return all(
        (values.get(step) or {"type": own}).get("type") == own for step, own in steps.items()
    )


def _cleaning(path: Path, config: dict[str, Any]) -> dict[str, Any]:
    """What is done to text before WordPiece; the config counts, then a ``tokenizer.json``."""
    own: dict[str, Any] = {}
    if path.suffix == ".json":
        from nq.preprocess.tokenizers.huggingface import read_json

        own = read_json(path).get("normalizer") or {}
    lowercase = _flag(config, "do_lower_case")
    chinese = config.get("tokenize_chinese_chars", own.get("handle_chinese_chars"))
    return {
        "lowercase": _flag(own, "lowercase") if lowercase is None else lowercase,
        "strip_accents": _flag({**own, **config}, "strip_accents"),
        "tokenize_chinese_chars": chinese is not False,
    }


def _model_type(folder: Path) -> str:
    config = folder / "config.json"
    try:
        return str(json.loads(config.read_bytes())["model_type"]) if config.is_file() else ""
    except (ValueError, KeyError, TypeError):
        return ""  # whoever reads the config says so


def _tokenizer_config(folder: Path) -> dict[str, Any]:
    """The folder's tokenizer_config.json, empty where it has none."""
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return {}
    try:
        return {**json.loads(path.read_bytes())}
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is not a JSON object: {error}") from error


def _flag(config: dict[str, Any], name: str) -> bool | None:
    value = config.get(name)
    return None if value is None else bool(value)


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    """SHA-256 over the tokenizer's kind and the bytes of its files."""
    total = hashlib.sha256(type(tokenizer).__name__.encode())
    for name, path in sorted(tokenizer.files.items()):
        total.update(name.encode())
        total.update(path.read_bytes())
    for setting in ("lowercase", "keep_accents", "strip_accents", "tokenize_chinese_chars"):
        total.update(str(getattr(tokenizer, setting, "")).encode())
    return total.hexdigest()
