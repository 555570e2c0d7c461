"""Tests that no ``tokenizer.json`` makes a text much longer, or ends in a panic of Rust."""

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers import normalizers, pre_tokenizers
from tokenizers.models import Unigram

from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.huggingface import MAX_EXPANSION
from nq.preprocess.tokenizers.load import load_tokenizer


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
    with pytest.raises(ValueError, match="is no tokenizer that nq knows") as error:
        load(normalizers.Precompiled(bytes(damaged)))
    assert "\n" not in str(error.value)
    assert capfd.readouterr().err == ""
