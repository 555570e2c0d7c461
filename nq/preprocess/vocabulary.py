"""A folder's tokenizer, found by the files that lie in it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from nq.preprocess.tokenizer import Tokenizer


def load_tokenizer(folder: str | Path, compat: str = "ours") -> Tokenizer:
    """The tokenizer whose files lie in ``folder`` (``folder`` may be such a file itself).

    Raises:
        FileNotFoundError: there is none; says which files would do.
        ValueError: one of its files is not what its name says, or does not know ``compat``.
    """
    path = Path(folder)
    if path.is_file():
        return _from_file(path, path.parent, compat)
    for name in ("vocab.txt", "vocab-nq.txt", "spiece.model", "sentencepiece.model"):
        if (path / name).is_file():
            return _from_file(path / name, path, compat)
    raise FileNotFoundError(
        f"no tokenizer in {path}: expected vocab.txt (WordPiece) or spiece.model (SentencePiece)"
    )


def _from_file(path: Path, folder: Path, compat: str) -> Tokenizer:
    if path.suffix == ".model":
        if compat != "ours":
            raise ValueError(f"{path}: compat {compat!r} is for WordPiece only, use 'ours'")
        from nq.preprocess.sentencepiece import SentencePieceTokenizer

        return SentencePieceTokenizer(path)
    from nq.preprocess.wordpiece import OriginalWordPieceTokenizer, WordPieceTokenizer

    kind = WordPieceTokenizer if compat == "ours" else OriginalWordPieceTokenizer
    return kind(path, lowercase=_lowercase(folder))


def _lowercase(folder: Path) -> bool | None:
    """``do_lower_case`` of the folder's tokenizer_config.json, ``None`` where it is silent."""
    config = folder / "tokenizer_config.json"
    if not config.is_file():
        return None
    try:
        value = json.loads(config.read_bytes()).get("do_lower_case")
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{config} is not a JSON object: {error}") from error
    return None if value is None else bool(value)


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    """SHA-256 over the tokenizer's kind and the bytes of its files."""
    total = hashlib.sha256(type(tokenizer).__name__.encode())
    for name, path in sorted(tokenizer.files.items()):
        total.update(name.encode())
        total.update(path.read_bytes())
    total.update(str(getattr(tokenizer, "lowercase", "")).encode())
    return total.hexdigest()
