"""Loads the tokenizer of a folder by the files in it."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nq.config import WindowConfig
from nq.formats.lines import check_whole
from nq.json_files import read_json_object
from nq.preprocess.tokenizers.base import SPECIAL, Tokenizer

SAMPLE = ("The", "café", "in", "東京", "\U0001f600", "", "".join(map(chr, range(33, 0x3000))))
"""Words that every tokenizer can encode; a damaged one fails at some character only."""
NAMES = (
    *("vocab.txt", "vocab-nq.txt", "spiece.model", "spm.model", "sentencepiece.bpe.model"),
    *("sentencepiece.model", "tokenizer.json", "vocab.json"),
)
SPIECE_DEFAULTS = {
    "albert": {"do_lower_case": True, "keep_accents": False},
    "rembert": {"do_lower_case": False, "keep_accents": True},
}
OWN_OPTIONS = {"do_lower_case", "strip_accents", "tokenize_chinese_chars"}
"""What nq writes into ``tokenizer_config.json``; Hugging Face writes other names too, or fewer."""
Values = dict[str, Any]
# The steps of a BERT; a tokenizer.json that names no step has these.
BERT_STEPS = (("normalizer", "BertNormalizer"), ("pre_tokenizer", "BertPreTokenizer"))


def load_tokenizer(folder: str | Path, compat: str = "ours") -> Tokenizer:
    """Loads the tokenizer of a folder or a file; ``compat`` may replace WordPiece by another."""
    path = Path(folder)
    if path.is_dir():
        path = next((path / name for name in NAMES if (path / name).is_file()), path)
    if not path.is_file():
        raise FileNotFoundError(
            f"no tokenizer in {path}: expected vocab.txt (WordPiece) or spiece.model "
            "(SentencePiece), or tokenizer.json, or vocab.json and merges.txt (byte-level BPE)"
        )
    for file in filter(Path.is_file, (path, path.with_name("merges.txt"))):
        check_whole(file)
    try:
        with _without_stderr():  # to which Rust writes panics
            tokenizer = _load(path, compat)
            tokenizer.encode(SAMPLE)
    except (OSError, ValueError, MemoryError, ImportError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a file may hold anything; a panic is no Exception
        raise ValueError(
            f"{path} is no tokenizer that nq knows ({type(error).__name__}: {error}): copy the "
            "file that the model came with"
        ) from error
    return tokenizer


@contextlib.contextmanager
def _without_stderr() -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # it is closed
            before = stack.enter_context(open(os.dup(2), "wb"))
            stack.callback(os.dup2, before.fileno(), 2)
            os.dup2(stack.enter_context(open(os.devnull, "wb")).fileno(), 2)
        yield


def _load(path: Path, compat: str) -> Tokenizer:
    original = WindowConfig(compat=compat).switches.original_wordpiece
    config, family = _values(path.with_name("tokenizer_config.json")), ""
    with contextlib.suppress(ValueError):  # whoever reads the model's config reports it
        family = str(_values(path.with_name("config.json")).get("model_type", ""))
    is_whole = path.suffix == ".json" and path.name != "vocab.json"
    whole = path if is_whole else path.with_name("tokenizer.json")
    description = _values(whole)
    added = _added_tokens(path, description, config)
    if not is_whole and all(t.get("special") or t["content"] in SPECIAL for t in added.values()):
        added = {}
    if path.suffix not in (".json", ".model") or (is_whole and _is_wordpiece(description)):
        from nq.preprocess.tokenizers import wordpiece

        own = description.get("normalizer") or {}
        lowercase = _flag(config, "do_lower_case")
        lowercase = _flag(own, "lowercase") if lowercase is None else lowercase
        strip_accents = _flag({**own, **config}, "strip_accents")
        chinese = config.get("tokenize_chinese_chars", own.get("handle_chinese_chars")) is not False
        if original:
            return wordpiece.OriginalWordPieceTokenizer(path, lowercase, strip_accents, chinese)
        from_hf = description or (family and config.keys() != OWN_OPTIONS)
        longest = wordpiece.HF_WORD_CHARS if from_hf else wordpiece.MAX_WORD_CHARS
        longest = {**config, **description.get("model", {})}.get(wordpiece.WORD_CHARS, longest)
        return wordpiece.WordPieceTokenizer(path, lowercase, strip_accents, chinese, longest, added)
    if original:
        raise ValueError(f"{path}: compat {compat!r} is for WordPiece only, use 'ours'")
    if path.suffix == ".model" and not added:
        from nq.preprocess.tokenizers.sentencepiece import SentencePieceTokenizer

        settings = dict(SPIECE_DEFAULTS.get(family, {}))
        settings |= {name: value for name, value in config.items() if value is not None}
        lowercase, keep_accents = (_flag(settings, n) for n in ("do_lower_case", "keep_accents"))
        return SentencePieceTokenizer(path, lowercase, keep_accents, family)
    from nq.preprocess.tokenizers.huggingface import LibraryTokenizer

    if path.suffix == ".model" and not description:
        raise ValueError(f"{path} has added tokens: save it with transformers as {whole.name}")
    return LibraryTokenizer(whole if path.suffix == ".model" else path, added)


def _added_tokens(path: Path, description: Values, config: Values) -> dict[str, Values]:
    """Returns the tokens that were added to a vocabulary, by id, with their flags."""
    if description:
        return {str(token["id"]): token for token in description.get("added_tokens") or ()}
    old = _values(path.with_name("added_tokens.json"))
    return config.get("added_tokens_decoder") or {str(i): {"content": p} for p, i in old.items()}


def _is_wordpiece(description: Values) -> bool:
    """Returns whether a ``tokenizer.json`` is a WordPiece that prepares text as BERT does."""
    model = description["model"]
    untyped = "WordPiece" if "max_input_chars_per_word" in model else ""  # older files
    steps = ((description.get(name) or {}).get("type", own) == own for name, own in BERT_STEPS)
    return model.get("type", untyped) == "WordPiece" and all(steps)


def _values(path: Path) -> Values:
    return read_json_object(path) if path.is_file() else {}


def _flag(config: Values, name: str) -> bool | None:
    value = config.get(name)
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"{name} of the tokenizer is {value!r:.40}: expected true, false or null")
    return value


def tokenizer_digest(tokenizer: Tokenizer) -> str:
    """Returns a SHA-256 over the tokenizer's kind, its options and the bytes of its files."""
    total = hashlib.sha256(type(tokenizer).__name__.encode())
    for name, path in sorted(tokenizer.files.items()):
        total.update(name.encode() + path.read_bytes())
    total.update(json.dumps(tokenizer.options).encode())
    return total.hexdigest()
