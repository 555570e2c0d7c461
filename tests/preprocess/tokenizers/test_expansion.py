"""Tests that no tokenizer of others takes for ever or much memory, or ends in a panic of Rust."""

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library
from tokenizers.models import Unigram, WordPiece

from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import LARGEST_WORD, MAX_EXPANSION, MAX_PIECE, load_tokenizer
from tests.preprocess.synthetic_tokenizers import BERT, spiece, write_folder


def character_map(text: str = "bb") -> bytes:
    """Returns a map of SentencePiece that replaces "a" by a text."""
    units = np.zeros(512, "<u4")
    units[0] = 256 << 10
    units[256 ^ ord("a")] = 1 << 10 | 1 << 8 | ord("a")
    units[256 ^ ord("a") ^ 1] = 1 << 31
    return b"".join([(4 * 512).to_bytes(4, "little"), units.tobytes(), text.encode(), b"\0"])


def load(normalizer: Any = None, pre_tokenizer: Any = None, piece: str = "\u2581") -> Tokenizer:
    special = [(name, 0.0) for name in ("<unk>", "<s>", "</s>", "<pad>")]
    library = Library(Unigram([*special, (piece, -1.0)], 0))
    if normalizer:
        library.normalizer = normalizer
    if pre_tokenizer:
        library.pre_tokenizer = pre_tokenizer
    with tempfile.TemporaryDirectory() as folder:
        return load_tokenizer(write_folder(Path(folder), {"tokenizer.json": library}))


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
        normalizers.Precompiled(character_map("\ufdfa")),
        normalizers.NFKC(),
        normalizers.Replace(Regex(" {2,}"), "\u2581"),
        normalizers.Prepend("\u2581"),
    ]
    assert load(normalizers.Sequence(several), pre_tokenizers.Metaspace()).encode(["a"])


@pytest.mark.parametrize("pattern", ["(a+)+$", '"\\\\'])
def test_an_unknown_regular_expression_is_refused(pattern: str) -> None:
    regex = Regex(pattern)
    with pytest.raises(ValueError, match="regular expression"):
        load(normalizers.Sequence([normalizers.Replace(regex, " ")]))
    with pytest.raises(ValueError, match="regular expression"):
        load(pre_tokenizer=pre_tokenizers.Split(regex, "isolated"))


def test_a_damaged_map_is_one_line_and_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    damaged = bytearray(character_map())
    damaged[4 * (1 + (256 ^ ord("a"))) + 3] = 0x7F  # its children are far outside the map
    with pytest.raises(ValueError, match="tokenizer") as error:
        load(normalizers.Precompiled(bytes(damaged)))
    assert "\n" not in str(error.value)
    assert capfd.readouterr().err == ""


def test_a_unigram_has_no_long_pieces() -> None:
    assert load(piece="a" * MAX_PIECE).encode(["a"])
    with pytest.raises(ValueError, match=str(MAX_PIECE + 1)):
        load(piece="a" * (MAX_PIECE + 1))


def test_a_long_word_is_unknown_whatever_the_file_says(tmp_path: Path) -> None:
    vocab = {piece: i for i, piece in enumerate([*BERT, "a", "##a"])}
    library = Library(WordPiece(vocab, unk_token="[UNK]", max_input_chars_per_word=10**9))
    tokenizer = load_tokenizer(write_folder(tmp_path, {"tokenizer.json": library}))
    assert tokenizer.encode(["a" * LARGEST_WORD]) == [(5, *[6] * (LARGEST_WORD - 1))]
    assert tokenizer.encode(["a" * (LARGEST_WORD + 1)]) == [(1,)]


def test_many_tokens_may_be_added(tmp_path: Path) -> None:
    library = Library(WordPiece({piece: i for i, piece in enumerate([*BERT, "a"])}))
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.add_tokens([AddedToken(f"x{i}x") for i in range(30_000)])
    tokenizer = load_tokenizer(write_folder(tmp_path, {"tokenizer.json": library}))
    assert tokenizer.encode(["ax29999x"]) == [(5, 30_005)]


def test_a_map_of_sentencepiece_is_bounded(tmp_path: Path) -> None:
    write_folder(tmp_path, {"config.json": {"model_type": "albert"}})
    for length in (MAX_EXPANSION, MAX_EXPANSION + 1):
        model = spiece(["<pad>", "<unk>", "[CLS]", "[SEP]"], character_map("b" * length))
        write_folder(tmp_path, {"spiece.model": model})
        if length == MAX_EXPANSION:
            assert load_tokenizer(tmp_path).encode(["a"])
    with pytest.raises(ValueError, match=f"{length} times"):
        load_tokenizer(tmp_path)
