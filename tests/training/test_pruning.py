"""The windows that importance is measured on: the first ones of each file in turn."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from nq.config import WindowConfig
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.training.pruning import training_windows
from tests.nq_records import changed, simplified, write_lines

WINDOWS = WindowConfig(max_seq_length=24, max_query_length=8, doc_stride=4)
QUESTIONS = ("who", "moon")


@pytest.fixture(scope="module")
def tokenizer(tiny_vocab: Path) -> Tokenizer:
    return load_tokenizer(tiny_vocab)


def test_each_file_has_its_share(tmp_path: Path, tokenizer: Tokenizer) -> None:
    files = []
    for question in QUESTIONS:
        records = [changed(simplified(i), "question_text", question) for i in range(20)]
        files.append(str(write_lines(tmp_path / f"{question}.jsonl", records)))
    windows = training_windows(files, tokenizer, WINDOWS, count=20)
    assert len(windows) == 20
    starts = [tokenizer.encode([question])[0] for question in QUESTIONS]
    shares = [
        sum(ids[2 : 2 + len(start)].tolist() == list(start) for ids in windows.input_ids)
        for start in starts
    ]
    assert sum(shares) == 20 and abs(shares[0] - shares[1]) <= 5


def test_bad_records_are_counted_and_those_without_annotations_left_out(
    tokenizer: Tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unannotated = changed(simplified(words=900), "annotations", ...)
    none = write_lines(tmp_path / "none.jsonl", [unannotated, b"{", b"{}"])
    with caplog.at_level(logging.WARNING), pytest.raises(ValueError) as error:
        training_windows([str(none)], tokenizer, WINDOWS)
    assert str(error.value).startswith(f"no window with an answer in {none}: expected records")
    (message,) = caplog.messages
    assert message.startswith(f"bad records, which are skipped: 2; the first: {none}, line 2: ")
