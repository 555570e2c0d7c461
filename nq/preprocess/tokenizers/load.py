"""Loads the tokenizer of a folder by the files in it.

A ``tokenizer.json`` is used as it is, and a ``vocab.txt`` as BERT's WordPiece. Of other files
``transformers``, an extra of nq, makes the tokenizer of the class that the folder names or that its
family has.
"""

import base64
import contextlib
import importlib
import json
import math
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unicodedata import normalize

from tokenizers import Tokenizer as Backend
from tokenizers.models import WordPiece

from nq.config import WindowConfig
from nq.errors import Error, check_argument
from nq.extras import install, missing
from nq.formats.lines import check_whole
from nq.json_files import read_json_object
from nq.preprocess.tokenizers import NAMES
from nq.preprocess.tokenizers.base import CONFIG, SPELLINGS, Tokenizer
from nq.preprocess.tokenizers.wordpiece import OriginalTokenizer, read_wordpiece

SAMPLE = ("The", "café", "in", "東京", "\U0001f600", "", "".join(map(chr, range(33, 0x3000))))
"""Words that every tokenizer can encode; a damaged one fails at some character only."""
MAX_LENGTH = 2**31 - 1
WORDPIECE = ("", "BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer", "MPNetTokenizer")
"""The classes of transformers, without ``Fast``, whose ``vocab.txt`` is read here."""
LARGEST_WORD = 1000
"""Characters of a word beyond which WordPiece gives [UNK]; its time grows with their cube."""
MAX_PIECE = 128
"""Characters of a piece of a unigram, of which all prefixes are looked up at each character."""
MESSAGES = "sentencepiece.sentencepiece_model_pb2"
KNOWN_PATTERNS = {" {2,}", r"\s{2,}|[\n\r\t]"}
MAX_EXPANSION = 64
EXPANSIONS = {"ByteLevel": 4, "BertNormalizer": 3}
"""Characters for one of a text, of all steps and of single ones; XLM-RoBERTa's map has up to 18."""
Values = dict[str, Any]


def load_tokenizer(folder: str | Path, compat: str = "ours") -> Tokenizer:
    """Loads the tokenizer of a folder or a file; ``compat`` may replace WordPiece by another."""
    path = Path(folder)
    if path.is_dir():
        path = next((path / name for name in NAMES if (path / name).is_file()), path)
    if not path.is_file():
        raise FileNotFoundError(
            f"no tokenizer in {path}: expected tokenizer.json, or vocab.txt (WordPiece), or "
            "spiece.model (SentencePiece), or vocab.json and merges.txt (byte-level BPE)"
        )
    content = path.read_bytes()
    check_whole(path, content)
    try:
        with _without_stderr():  # to which Rust writes panics, and transformers advice
            tokenizer = _load(path, content)
            if WindowConfig(compat=compat).switches.original_wordpiece:
                tokenizer = OriginalTokenizer.of(tokenizer, compat)
            tokenizer.encode(SAMPLE)
    except (Error, OSError, ValueError, MemoryError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a file may hold anything; a panic is no Exception
        raise ValueError(
            f"{path} is no tokenizer that nq knows ({type(error).__name__}: {error}): copy the "
            "file that the model came with"
        ) from error
    tokenizer.origin = Path(folder)
    tokenizer.load_again = partial(_load_again, folder, compat)
    return tokenizer


def _load_again(folder: str | Path, compat: str, digest: str) -> Tokenizer:
    """Returns the tokenizer that another process has sent; ``Error`` if its files have changed."""
    tokenizer = load_tokenizer(folder, compat)
    if tokenizer.digest != digest:
        raise Error(f"the tokenizer in {folder} changed while it was used: start again")
    return tokenizer


def max_length(folder: str | Path) -> int:
    """Returns the pieces that a folder's tokenizer says a window may have; else a huge number."""
    length = _values(Path(folder) / CONFIG).get("model_max_length") or MAX_LENGTH
    is_length = type(length) in (int, float) and length >= 1
    check_argument(is_length, "model_max_length", length, "a number from 1 on")
    return int(min(length, MAX_LENGTH))


@contextlib.contextmanager
def _without_stderr() -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # it is closed
            before = stack.enter_context(open(os.dup(2), "wb"))
            stack.callback(os.dup2, before.fileno(), 2)
            os.dup2(stack.enter_context(open(os.devnull, "wb")).fileno(), 2)
        yield


def _values(path: Path) -> Values:
    return read_json_object(path) if path.is_file() else {}


def _load(path: Path, content: bytes) -> Tokenizer:
    config = _values(path.with_name(CONFIG))
    if path.suffix == ".json" and path.name != "vocab.json":
        return _of_json(path, content, read_json_object(path), config)
    if path.suffix not in (".json", ".model"):
        model = _values(path.with_name("config.json"))
        name = config.get("tokenizer_class") or model.get("tokenizer_class") or ""
        added = (config.get("added_tokens_decoder") or {}).values()
        is_plain = all(token.get("special") for token in added)
        is_plain = is_plain and not path.with_name("added_tokens.json").is_file()
        if is_plain and str(name).removesuffix("Fast") in WORDPIECE:
            return read_wordpiece(path, content, config)
    return _of_transformers(path)


def _of_transformers(path: Path) -> Tokenizer:
    """Returns the tokenizer that transformers makes of the files beside ``path``."""
    if lacking := missing("transformers"):
        raise Error(f"{path} needs {' and '.join(lacking)}: {install('transformers')}")
    merges = path.with_name("merges.txt")
    if merges.is_file():
        check_whole(merges)
    from transformers import AutoTokenizer

    if MESSAGES not in sys.modules:  # that module refuses the protobuf of TensorFlow
        module = "transformers.utils.sentencepiece_model_pb2_new"
        sys.modules[MESSAGES] = importlib.import_module(module)
    try:
        made = AutoTokenizer.from_pretrained(
            path.parent, local_files_only=True, trust_remote_code=False
        )
        text = made.backend_tokenizer.to_str()
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"transformers makes no tokenizer of {path} ({type(error).__name__}: {reason}): save "
            "it as tokenizer.json where it can be loaded, or choose another model"
        ) from error
    return _of_json(path, text.encode(), json.loads(text), made.special_tokens_map)


def _of_json(path: Path, content: bytes, values: Values, config: Values) -> Tokenizer:
    """Returns the tokenizer that a ``tokenizer.json`` describes.

    Args:
        path: the file of the folder's tokenizer.
        content: that of the ``tokenizer.json``, whose ``values`` are parsed.
        config: has the special pieces, as far as known.
    """
    _check(path, values)
    backend = Backend.from_str(json.dumps(values))
    backend.no_padding()
    backend.no_truncation()
    if isinstance(backend.model, WordPiece):
        longest = min(backend.model.max_input_chars_per_word, LARGEST_WORD)
        backend.model.max_input_chars_per_word = longest
    # This class of transformers takes the file as it is.
    options: Values = {"tokenizer_class": "PreTrainedTokenizerFast"}
    options |= {name: config[name] for name in SPELLINGS if config.get(name)}
    return Tokenizer(path, {"tokenizer.json": content}, backend, options)


def _check(path: Path, values: Values) -> None:
    """Checks that no text takes for ever or much memory, whoever made the ``tokenizer.json``."""
    steps = [*_steps(values.get("normalizer")), *_steps(values.get("pre_tokenizer"))]
    patterns = {step.get("pattern", {}).get("Regex") for step in steps} - {None, *KNOWN_PATTERNS}
    if patterns:
        raise ValueError(
            f"{path} has the regular expression {min(patterns)!r:.80}, which may take for ever: "
            "expected one of a known family or none; choose another model"
        )
    vocab = values["model"]["vocab"]
    pieces = [piece for piece, _ in vocab] if isinstance(vocab, list) else []
    longest = max(map(len, pieces), default=0)
    if longest > MAX_PIECE:
        raise ValueError(
            f"{path} has a piece of {longest} characters: expected at most {MAX_PIECE}; choose "
            "another model"
        )
    longer = math.prod(map(_expansion, steps))
    if longer > MAX_EXPANSION:
        raise ValueError(
            f"{path} may make a text {longer} times longer before it cuts it: expected at "
            f"most {MAX_EXPANSION} times; choose another model"
        )


def _steps(step: Values | None) -> Iterator[Values]:
    """Yields a step of a ``tokenizer.json`` and those inside it."""
    if step:
        yield step
        for inner in (*step.get("normalizers", ()), *step.get("pretokenizers", ())):
            yield from _steps(inner)


def _expansion(step: Values) -> int:
    """Returns the largest factor by which one step lengthens a text.

    Forms of Unicode, which do so once, are not counted. A map of SentencePiece has the size of its
    trie, the trie, and the texts that replace characters, each with a zero behind it.
    """
    texts = [step.get("content", ""), "a" + step.get("prepend", "")]
    with contextlib.suppress(ValueError):  # the library says what is damaged
        data = base64.b64decode(step.get("precompiled_charsmap") or "")
        texts += data[4 + int.from_bytes(data[:4], "little") :].decode().split("\0")
    sizes = (len(normalize("NFKD", text)) for text in texts)
    return max(EXPANSIONS.get(step["type"], 1), *sizes)
