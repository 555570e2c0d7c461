"""The compatibility modes, against frozen features of the originals.

``tests/golden/compat/features.jsonl`` is what google-research/language's
``bert_joint/run_nq.py`` (bert-joint) and the 2020 port's ``bert_utils.py`` (kisialiou), with
google-research/bert's tokenizer, made of ``pages.jsonl`` and ``vocab.txt`` beside it. The
pages are made up, by hand and by chance. Left out are pages at which the originals crash and
targets that they are known to place wrongly. A row holds what is not fixed by the layout:
the pieces without padding, the length of segment 0, and the map of the span.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.config import WindowConfig
from nq.formats.natural_questions import decode_simplified, decode_v1, is_tag
from nq.preprocess.features import Sampling, features, training_features
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import Example, Features
from tests.preprocess.synthetic_examples import few, pages, plain_words
from tests.preprocess.test_features import labels

GOLDEN = Path(__file__).parents[1] / "golden" / "compat"


def read(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / name).read_text().splitlines()]


PAGES = {record["name"]: record for record in read("pages.jsonl")}
RUNS = read("features.jsonl")


def as_v1(record: dict[str, Any]) -> dict[str, Any]:
    """The record in the v1.0 dialect, which alone the original reads."""
    tokens = record["document_text"].split(" ")
    items = [{"token": token, "html_token": is_tag(token)} for token in tokens]
    return {**record, "document_tokens": items}


def inference_rows(made: Features) -> list[dict[str, Any]]:
    found = []
    columns = (made.input_ids, made.input_mask, made.segment_ids, made.token_map)
    for ids, mask, segments, doc in zip(*(c.tolist() for c in columns), strict=True):
        length, query = sum(mask), sum(mask) - sum(segments)
        assert mask == [1] * length + [0] * (len(ids) - length)
        assert segments == [0] * query + [1] * (length - query) + [0] * (len(ids) - length)
        assert not any(ids[length:])
        assert {*doc[:query], *doc[length - 1 :]} == {-1}
        found.append({"ids": ids[:length], "query": query, "map": doc[query : length - 1]})
    return found


@pytest.mark.parametrize("run", RUNS, ids=[f"{r['page']}-{r['compat']}" for r in RUNS])
def test_features_are_those_of_the_originals(run: dict[str, Any]) -> None:
    config = WindowConfig(compat=run["compat"], **run["windows"])
    tokenizer = load_tokenizer(GOLDEN, config.compat)
    record = PAGES[run["page"]]
    example = (
        decode_v1(as_v1(record)) if config.compat == "bert-joint" else decode_simplified(record)
    )
    if run["training"]:
        made = training_features(example, tokenizer, config, Sampling(1.0, 1))
        assert [{"target": list(label)} for label in labels(made)] == run["rows"]
    else:
        assert inference_rows(features(example, tokenizer, config)) == run["rows"]


@few
@given(pages(plain_words))
def test_on_plain_pages_all_modes_agree(
    wordpiece: Tokenizer, original: Tokenizer, example: Example
) -> None:
    def rows(compat: str) -> list[dict[str, Any]]:
        config = WindowConfig(80, doc_stride=9, max_query_length=60, compat=compat)
        return inference_rows(
            features(example, wordpiece if compat == "ours" else original, config)
        )

    assert rows("ours") == rows("bert-joint") == rows("kisialiou")


@few
@given(st.text(st.characters(codec="ascii"), max_size=12).filter(lambda word: "[" not in word))
def test_on_ascii_words_the_original_tokenizer_is_the_library(
    wordpiece: Tokenizer, original: Tokenizer, word: str
) -> None:
    assert original.encode([word]) == wordpiece.encode([word])
