"""Translated windows are those that the other tokenizer makes of the text."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.bundle import bundled_model, bundled_sample
from nq.config import WindowConfig
from nq.formats.inputs import read_examples
from nq.preprocess.features import training_features
from nq.preprocess.tokenizers.base import MARKERS, Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.preprocess.tokenizers.wordpiece import read_vocab
from nq.records import Example, Features
from nq.training.translation import Translation
from nq.training.windows import TrainingWindows
from tests.preprocess.synthetic_examples import bert_rows, pages, write_rows

SMALL = WindowConfig(max_seq_length=24, doc_stride=5, max_query_length=6, max_contexts=6)
ALL = slice(None)


def mpnet_rows(rows: Sequence[str]) -> list[str]:
    """Returns MPNet's vocabulary by BERT's: more special pieces, and no names of markers."""
    unnamed = [f"[unused{i + 99}]" if row in MARKERS else row for i, row in enumerate(rows)]
    return ["<s>", "<pad>", "</s>", "<unk>", *unnamed, "<mask>"]


def tokenizer(folder: Path, rows: Sequence[str], compat: str = "ours") -> Tokenizer:
    folder.mkdir()
    return load_tokenizer(write_rows(folder / "vocab.txt", rows), compat)


@pytest.fixture(scope="module", params=["ours", "bert-joint"])
def pair(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> tuple[Tokenizer, Tokenizer]:
    """BERT and MPNet with the same pieces."""
    folder = tmp_path_factory.mktemp("vocabularies")
    one = tokenizer(folder / "bert", bert_rows(), request.param)
    return one, tokenizer(folder / "mpnet", mpnet_rows(bert_rows()), request.param)


def windows_of(features: Features) -> TrainingWindows:
    columns = {f.name: getattr(features, f.name) for f in dataclasses.fields(features)}
    return TrainingWindows.from_columns(columns)


def check(example: Example, one: Tokenizer, other: Tokenizer, config: WindowConfig) -> None:
    """Compares translated windows with those of the other tokenizer, and the way back."""
    translation = Translation.between(one, other)
    length = config.max_seq_length + translation.more_separators
    longer = dataclasses.replace(config, max_seq_length=length)
    made = training_features(example, one, config, 1.0, 0)
    expected = training_features(example, other, longer, 1.0, 0)
    windows = windows_of(made)
    translated = translation.rows(windows, ALL, length)
    for name, rows in translated.items():
        assert rows.dtype == np.int32
        np.testing.assert_array_equal(rows, getattr(expected, name), name)
    back = translation.back(windows, ALL, translated["input_ids"].astype(float), missing=-1)
    has_none = back == -1
    missing = max(0, -translation.more_separators)
    assert (
        has_none.sum(axis=1).tolist()
        == (config.max_seq_length - windows.n_pieces + missing).tolist()
    )
    inner = ~has_none & (made.token_map >= 0)
    np.testing.assert_array_equal(back[inner], translation.ids[made.input_ids][inner])
    assert (back[:, 0] == other.cls_id).all()
    docs = translation.back(windows, ALL, expected.token_map.astype(float), missing=-1)
    np.testing.assert_array_equal(docs, made.token_map)


def settings_for(tokenizer: Tokenizer) -> WindowConfig:
    """Returns small windows in the mode that the tokenizer is for."""
    compat = "ours" if type(tokenizer).__name__ == "WordPieceTokenizer" else "bert-joint"
    return dataclasses.replace(SMALL, compat=compat)


@given(pages(), st.booleans())
def test_windows_between_bert_and_mpnet(
    pair: tuple[Tokenizer, Tokenizer], example: Example, reverse: bool
) -> None:
    one, other = reversed(pair) if reverse else pair
    check(example, one, other, settings_for(one))


def test_real_vocabularies(tmp_path: Path) -> None:
    rows = list(read_vocab(bundled_model() / "vocab.txt"))
    bert, mpnet = load_tokenizer(bundled_model()), tokenizer(tmp_path / "x", mpnet_rows(rows))
    config = WindowConfig(max_seq_length=256, doc_stride=192)
    for example in list(read_examples(bundled_sample()))[::8]:
        check(example, bert, mpnet, config)
        check(example, mpnet, bert, config)


def test_other_pieces_are_refused(tmp_path: Path) -> None:
    rows, words = bert_rows(), [row for row in bert_rows() if row != "river"]
    bert = tokenizer(tmp_path / "bert", rows)
    cased = tokenizer(tmp_path / "cased", [*rows, "River"])
    settings = tmp_path / "kept" / "tokenizer_config.json"
    tokenizer(tmp_path / "kept", mpnet_rows(rows))
    settings.write_text('{"strip_accents": false}')
    n = len(rows) - 104 - len(MARKERS)
    less = f"have {n} and {n - 1} pieces, of which {n - 1} are in both and 'river' is in one only"
    cases: list[tuple[Tokenizer, Tokenizer, str]] = [
        (bert, tokenizer(tmp_path / "less", words), less),
        (bert, cased, "do_lower_case is True for one, False"),
        (bert, load_tokenizer(tmp_path / "kept"), "strip_accents is True for one, False for"),
    ]
    for one, other, reason in cases:
        with pytest.raises(ValueError, match=reason):
            Translation.between(one, other)
