"""Loads the tokenizer of a folder by the files in it."""

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from nq.config import WindowConfig
from nq.errors import Error, check_argument
from nq.formats.lines import check_whole
from nq.json_files import read_json_object
from nq.preprocess.tokenizers import NAMES
from nq.preprocess.tokenizers.base import ADDED, MAX_ID, SPECIAL, Tokenizer
from nq.preprocess.tokenizers.classes import (
    ALIASES,
    CLASSES,
    LARGEST_WORD,
    OF_FAMILIES,
    SENTENCEPIECE,
    VOCAB,
    WHOLE,
    WHOLE_FILE,
    Values,
    added_tokens,
    flag,
    make_tokenizer,
    spelling,
)
from nq.preprocess.tokenizers.wordpiece import (
    BERT_OPTIONS,
    MAX_WORD_CHARS,
    WORD_CHARS,
    OriginalWordPieceTokenizer,
    WordPieceTokenizer,
)

SAMPLE = ("The", "café", "in", "東京", "\U0001f600", "", "".join(map(chr, range(33, 0x3000))))
"""Words that every tokenizer can encode; a damaged one fails at some character only."""
CONFIG, VOCABULARY = "tokenizer_config.json", "vocab.txt"


def load_tokenizer(folder: str | Path, compat: str = "ours") -> Tokenizer:
    """Loads the tokenizer of a folder or a file; ``compat`` may replace WordPiece by another."""
    path = Path(folder)
    place = path if path.is_dir() else path.parent
    config = _values(place / CONFIG)
    name = _class_of(place, config)
    if path.is_dir():
        kind = CLASSES.get(name)
        names = [WHOLE_FILE, *NAMES]
        if kind:
            names.insert(1, kind.vocabulary)
        path = next((path / name for name in names if (path / name).is_file()), path)
    if not path.is_file():
        raise FileNotFoundError(
            f"no tokenizer in {path}: expected vocab.txt (WordPiece) or spiece.model "
            "(SentencePiece), or tokenizer.json, or vocab.json and merges.txt (byte-level BPE)"
        )
    for file in (path, path.with_name("merges.txt")):
        if file.name != VOCABULARY and file.is_file():
            check_whole(file)
    try:
        with _without_stderr():  # to which Rust writes panics
            tokenizer = _load(path, compat, config, name)
            tokenizer.encode(SAMPLE)
    except (OSError, ValueError, MemoryError, ImportError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a file may hold anything; a panic is no Exception
        raise ValueError(
            f"{path} is no tokenizer that nq knows ({type(error).__name__}: {error}): copy the "
            "file that the model came with"
        ) from error
    tokenizer.origin, tokenizer.load_again = Path(folder), partial(_load_again, folder, compat)
    return tokenizer


def _load_again(folder: str | Path, compat: str, digest: str) -> Tokenizer:
    """Returns the tokenizer that another process has sent; ``Error`` if its files have changed."""
    tokenizer = load_tokenizer(folder, compat)
    if tokenizer.digest != digest:
        raise Error(f"the tokenizer in {folder} changed while it was used: start again")
    return tokenizer


def max_length(folder: str | Path) -> int:
    """Returns the pieces that a folder's tokenizer says a window may have; else a huge number."""
    length = _values(Path(folder) / CONFIG).get("model_max_length") or MAX_ID
    is_length = type(length) in (int, float) and length >= 1
    check_argument(is_length, "model_max_length", length, "a number from 1 on")
    return int(min(length, MAX_ID))


@contextlib.contextmanager
def _without_stderr() -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # it is closed
            before = stack.enter_context(open(os.dup(2), "wb"))
            stack.callback(os.dup2, before.fileno(), 2)
            os.dup2(stack.enter_context(open(os.devnull, "wb")).fileno(), 2)
        yield


def _class_of(folder: Path, config: Values) -> str:
    """Returns the class of a folder's tokenizer in transformers; empty if nothing tells it."""
    model = Values()
    with contextlib.suppress(ValueError):  # whoever reads the model's config reports it
        model = _values(folder / "config.json")
    family = str(model.get("model_type", ""))
    if OF_FAMILIES.get(family) == WHOLE:
        return WHOLE
    name = config.get("tokenizer_class") or model.get("tokenizer_class")
    name = str(name or OF_FAMILIES.get(family, "")).removesuffix("Fast")
    return ALIASES.get(name, name)


def _load(path: Path, compat: str, config: Values, name: str) -> Tokenizer:
    original = WindowConfig(compat=compat).switches.original_wordpiece
    keys = config.keys() - {WORD_CHARS, ADDED}
    is_whole = path.suffix == ".json" and path.name != VOCAB
    is_text = path.suffix not in (".json", ".model")
    description = _values(path if is_whole else path.with_name(WHOLE_FILE))
    config |= _older_values(path.parent, config, description)
    kind = CLASSES.get(name)
    is_other = path.name != (kind.vocabulary if kind else VOCABULARY)
    # nq writes these options alone; Hugging Face writes other names too, or fewer
    is_own = is_text and (not name or keys == {*BERT_OPTIONS} or is_other)
    if original and not is_text:
        model = description["model"] if is_whole else {}  # older ones do not name their type
        if model.get("type", "WordPiece" if WORD_CHARS in model else "") != "WordPiece":
            raise ValueError(f"{path}: compat {compat!r} is for WordPiece only, use 'ours'")
    if original or is_own:
        normalizer, added = description.get("normalizer") or {}, added_tokens(config, {})
        lowercase, strip_accents = flag(config, "do_lower_case"), flag(config, "strip_accents")
        options = (
            flag(normalizer, "lowercase") if lowercase is None else lowercase,
            strip_accents,
            config.get("tokenize_chinese_chars") is not False,
        )
        if original:
            return OriginalWordPieceTokenizer(path, *options)
        if all(token.special or token.content in SPECIAL for token in added):
            added = []
        longest = min(LARGEST_WORD, config.get(WORD_CHARS, MAX_WORD_CHARS))
        return WordPieceTokenizer(path, *options, longest, added)
    if not name:
        name = WHOLE if is_whole else {VOCAB: "RobertaTokenizer"}.get(path.name, SENTENCEPIECE)
    if name != WHOLE and name not in CLASSES:
        raise ValueError(
            f"{path.parent} has a tokenizer of the class {name!r:.80}, which nq does not have: "
            f"expected one of {', '.join((WHOLE, *CLASSES))}; choose another model"
        )
    needed = CLASSES[name].vocabulary if name in CLASSES else WHOLE_FILE
    if not is_whole and path.suffix != Path(needed).suffix:
        raise ValueError(f"{path.parent} has no {needed}, which its tokenizer_class {name} needs")
    return make_tokenizer(path, name, config, description)


def _older_values(folder: Path, config: Values, description: Values) -> Values:
    """Returns special pieces and added tokens of files that older transformers wrote."""
    if ADDED in config:
        return {}
    special = _values(folder / "special_tokens_map.json")
    named = [value for key, value in (config | special).items() if key.endswith("_token") and value]
    for key in ("additional_special_tokens", "extra_special_tokens"):
        named += (config | special).get(key) or []
    spelled = set(map(spelling, named))
    tokens = {
        str(i): {"content": piece, "normalized": piece not in spelled, "special": piece in spelled}
        for piece, i in _values(folder / "added_tokens.json").items()
    }
    tokens |= {str(token["id"]): token for token in description.get("added_tokens") or ()}
    return {**special, ADDED: tokens}


def _values(path: Path) -> Values:
    return read_json_object(path) if path.is_file() else {}
