"""A Hugging Face model, called as the pipeline of transformers 4, gives the same answers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

import nq
from experiments.peers.pipeline import CALLS, LIVE, answers, differences, write_model
from nq.formats.documents import page_from_text
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import Span
from nq.transformers_pipeline import ContextWindows, span_answers
from tests.preprocess.synthetic_tokenizers import byte_level, unigram

GOLDEN = Path(__file__).parent / "golden" / "pipeline.json"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("theirs") / "theirs")


@pytest.mark.slow
def test_all_calls_give_the_answers_of_transformers_4(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The golden file is written by ``python -m experiments.peers.pipeline --output``."""
    expected = json.loads(GOLDEN.read_text(encoding="utf-8"))["answers"]
    with nq.pipeline("question-answering", folder) as pipeline:
        actual = answers(pipeline)
        with pytest.raises(ValueError, match="max_seq_len is 513"):
            pipeline(**LIVE, max_seq_len=513)
        with pytest.raises(ValueError, match="doc_stride is 90"):
            pipeline(**LIVE, max_seq_len=100, doc_stride=90)
    assert not caplog.text
    assert actual.keys() == expected.keys()
    assert {call: differences(expected[call], actual[call]) for call in actual} == {
        call: [] for call in actual
    }


def test_calls_of_model_cards(folder: Path) -> None:
    with nq.pipeline("question-answering", folder, tokenizer=str(folder)) as pipeline:
        assert pipeline(LIVE, topk=3) == pipeline(**LIVE, top_k=3)
        assert pipeline((LIVE, LIVE)) == pipeline([LIVE, LIVE]) == [pipeline(LIVE)] * 2
        assert pipeline((LIVE["question"],), (LIVE["context"],)) == [pipeline(LIVE)]
        long = {**LIVE, "question": "where " * 500}
        with pytest.raises(ValueError, match=r"^question is"):
            pipeline(long)
    for options in ({"tokenizer": "org/other"}, {"revision": "main"}):
        name, value = next(iter(options.items()))
        with pytest.raises(ValueError, match=f"{name} is '{value}'"):
            nq.pipeline("question-answering", folder, **options)


class Ranked:
    """A ranking whose short answers have the words of a page, and these probabilities.

    The page has one block, with the probability ``block``.
    """

    def __init__(self, probabilities: list[float], block: float, config: nq.DecisionConfig) -> None:
        self.probabilities = np.array([block])
        self.example = page_from_text("a b c d e f").with_question("which")
        self.spans = [(Span(i + 1, i + 2), p) for i, p in enumerate(probabilities)]
        self.config = config

    def short_spans(self, limit: int) -> list[tuple[Span, float]]:
        return self.spans[:limit]


@given(
    st.lists(st.floats(0, 1), max_size=5).map(lambda values: sorted(values, reverse=True)),
    st.floats(0, 1),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(2, 6),
)
def test_scores_never_rise_and_the_first_answer_is_that_of_the_decision(
    probabilities: list[float], block: float, long_threshold: float, threshold: float, top_k: int
) -> None:
    config = nq.DecisionConfig(long_threshold=long_threshold, short_threshold=threshold)
    ranked = Ranked(probabilities, block, config)
    one, several = (next(span_answers([ranked], k, True)) for k in (1, top_k))  # type: ignore[list-item]
    scores = [answer["score"] for answer in several]
    assert scores == sorted(scores, reverse=True)
    assert one == several[:1]
    is_given = block >= long_threshold and max(probabilities, default=-1) >= threshold
    assert (one[0]["answer"] != "") == is_given
    assert all(0 <= score <= 1 for score in scores)


@pytest.mark.parametrize("overlap", [0, 7])
def test_spans_are_those_of_a_loop_over_all(folder: Path, overlap: int) -> None:
    context, draw = CALLS["long context"][1]["context"], np.random.default_rng(overlap)
    tokenizer = load_tokenizer(folder)
    windows = ContextWindows.of("Where?", context, tokenizer, 60, overlap)
    pieces = tokenizer.encode_text(context)
    shape = windows.rows["input_ids"].shape
    start, end = draw.normal(0, 3, (2, *shape)).astype(np.float32)
    scores: dict[str, float] = {}
    for row in range(shape[0]):
        token_map = windows.rows["token_map"][row]
        inside = np.flatnonzero(token_map >= 0)
        starts, ends = (softmax(logits[row, [0, *inside]])[1:] for logits in (start, end))
        for i, first in enumerate(token_map[inside]):
            for j, last in enumerate(token_map[inside][i : i + 4], i):
                text = context[pieces.chars[first, 0] : pieces.chars[last, 1]].lower()
                scores[text] = scores.get(text, 0) + float(starts[i] * ends[j])
    found = windows.answers(start, end, len(scores), False, 4, align_to_words=False)
    covered = np.unique(windows.rows["token_map"])
    assert covered.tolist() == list(range(-1, len(pieces.ids)))
    assert [one["answer"].lower() for one in found[:5]] == sorted(
        scores, key=lambda text: -scores[text]
    )[:5]
    best: dict[str, Any] = found[0]
    assert best["answer"] == context[best["start"] : best["end"]]


@pytest.mark.parametrize(
    ("family", "make"),
    [("xlm-roberta", unigram), ("modernbert", unigram), ("roberta", byte_level)],
)
def test_the_piece_of_a_blank_alone_is_no_letter_of_the_next_word(
    family: str, make: Callable[[], Any], tmp_path: Path
) -> None:
    make().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
    tokenizer, context = load_tokenizer(tmp_path), "of Zera"
    windows = ContextWindows.of("who", context, tokenizer, 40, 0)
    ids, first = windows.rows["input_ids"][0], windows.first
    blanks = np.isin(ids, [tokenizer.piece_id(piece) or -1 for piece in ("\u2581", "\u0120")])
    start, end = np.zeros((2, 1, len(ids)), np.float32)
    start[0, first] = end[0, np.flatnonzero(blanks)[-1]] = 9
    (best,) = windows.answers(start, end, 1, False, 15, align_to_words=False)
    assert best["answer"].strip() == "of"
    (best,) = windows.answers(start, end, 1, False, 15, align_to_words=True)
    assert best["answer"] == context
