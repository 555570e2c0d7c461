"""Tests that no tokenizer of others takes for ever or much memory, or ends in a panic of Rust."""

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import normalizers, pre_tokenizers
from tokenizers.models import Unigram, WordPiece

from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.classes import LARGEST_WORD, MAX_EXPANSION, MAX_PIECE
from nq.preprocess.tokenizers.load import load_tokenizer

PLAIN_TOKEN = dict.fromkeys(("special", "single_word", "lstrip", "rstrip", "normalized"), False)


def character_map(text: str = "bb") -> bytes:
    """Returns a map of SentencePiece that replaces "a" by a text."""
    units = np.zeros(512, "<u4")
    units[0] = 256 << 10
    units[256 ^ ord("a")] = 1 << 10 | 1 << 8 | ord("a")
    units[256 ^ ord("a") ^ 1] = 1 << 31
    return b"".join([(4 * 512).to_bytes(4, "little"), units.tobytes(), text.encode(), b"\0"])


def load(normalizer: Any = None, pre_tokenizer: Any = None) -> Tokenizer:
    vocab = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), ("<pad>", 0.0), ("\u2581", -1.0)]
    library = Library(Unigram(vocab, 0))
    if normalizer:
        library.normalizer = normalizer
    if pre_tokenizer:
        library.pre_tokenizer = pre_tokenizer
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        library.save(str(path))
        return load_tokenizer(path)


steps = st.one_of(
    st.builds(normalizers.Replace, st.text("ab", min_size=1, max_size=3), st.text("ab")),
    st.builds(normalizers.Prepend, st.text("ab", min_size=1, max_size=9)),
    st.just(normalizers.Precompiled(character_map("bbbb"))),
    st.just(normalizers.ByteLevel()),
)


@settings(max_examples=30)
@given(st.lists(steps, max_size=6), st.text("abé", min_size=1, max_size=20))
def test_the_bound_holds_for_every_chain_that_is_taken(chain: list[Any], text: str) -> None:
    normalizer = normalizers.Sequence(chain)
    with contextlib.suppress(ValueError):
        load(normalizer)
        assert len(normalizer.normalize_str(text)) <= MAX_EXPANSION * len(text)


def test_the_steps_of_known_models_are_taken() -> None:
    several = [
        *(normalizers.Precompiled(character_map("\ufdfa")), normalizers.NFKC()),
        *(normalizers.Replace(" ", "\u2581"), normalizers.Prepend("\u2581")),
    ]
    assert load(normalizers.Sequence(several), pre_tokenizers.Metaspace()).encode(["a"])


def test_a_damaged_map_is_one_line_and_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    damaged = bytearray(character_map())
    damaged[4 * (1 + (256 ^ ord("a"))) + 3] = 0x7F  # its children are far outside the map
    with pytest.raises(ValueError, match="tokenizer") as error:
        load(normalizers.Precompiled(bytes(damaged)))
    assert "\n" not in str(error.value)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("model_type", ["", "xlm-roberta"])
@pytest.mark.parametrize("length", [MAX_PIECE, MAX_PIECE + 1])
def test_a_unigram_has_no_long_pieces(tmp_path: Path, model_type: str, length: int) -> None:
    special = [(piece, 0.0) for piece in ("<s>", "<pad>", "</s>", "<unk>")]
    Library(Unigram([*special, ("a" * length, -1.0)], 3)).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}))
    if length <= MAX_PIECE:
        assert load_tokenizer(tmp_path).encode(["a"])
        return
    with pytest.raises(ValueError, match=str(length)):
        load_tokenizer(tmp_path)


def test_a_long_word_is_unknown_whatever_the_file_says(tmp_path: Path) -> None:
    vocab = {piece: i for i, piece in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "##a"])}
    library = Library(WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=10**9))
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode(["a" * LARGEST_WORD]) == [(4, *[5] * (LARGEST_WORD - 1))]
    assert tokenizer.encode(["a" * (LARGEST_WORD + 1)]) == [(1,)]


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json"])
def test_many_tokens_may_be_added(tmp_path: Path, file: str) -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"]
    count, first = 30_000, len(pieces)
    tokens = [{"id": first + i, "content": f"x{i}x", **PLAIN_TOKEN} for i in range(count)]
    library = Library(WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    values = json.loads(library.to_str()) | {"pre_tokenizer": {"type": "BertPreTokenizer"}}
    if file == "tokenizer.json":
        (tmp_path / file).write_text(json.dumps(values | {"added_tokens": tokens}))
    else:
        (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
        (tmp_path / "config.json").write_text('{"model_type": "bert"}')
        decoder = {str(token.pop("id")): token for token in tokens}
        (tmp_path / file).write_text(json.dumps({"added_tokens_decoder": decoder}))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.encode(["ax29999x"]) == [(4, first + count - 1)]


def test_a_map_of_sentencepiece_is_bounded(spiece_models: dict[str, Path], tmp_path: Path) -> None:
    def field(number: int, value: bytes) -> bytes:
        return bytes([number << 3 | 2, len(value) & 0x7F | 0x80, len(value) >> 7]) + value

    model = spiece_models["plain-unigram"].read_bytes()
    for length in (MAX_EXPANSION, MAX_EXPANSION + 1):
        normalizer = field(3, field(2, character_map("b" * length)))
        (tmp_path / "spiece.model").write_bytes(model + normalizer)
        if length == MAX_EXPANSION:
            assert load_tokenizer(tmp_path).encode(["a"])
    with pytest.raises(ValueError, match=str(length)):
        load_tokenizer(tmp_path)
