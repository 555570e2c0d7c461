"""A Hugging Face model, called as the pipeline of transformers 4, gives the same answers."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nq
from experiments.peers.pipeline import LIVE, answers, differences, write_model
from nq.formats.documents import page_from_text
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import Span
from nq.transformers_pipeline import ContextWindows, span_answers
from tests.preprocess.synthetic_tokenizers import unigram

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
        alone = pytest.approx(pipeline(LIVE), abs=1e-5)  # of other batches the low bits may differ
        assert pipeline((LIVE, LIVE)) == pipeline([LIVE, LIVE]) == [alone] * 2
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


def test_the_piece_of_a_blank_alone_is_no_letter_of_the_next_word(tmp_path: Path) -> None:
    unigram().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "xlm-roberta"}))
    tokenizer, context = load_tokenizer(tmp_path), "of Zera"
    windows = ContextWindows.of("who", context, tokenizer, 40, 0)
    ids, first = windows.rows["input_ids"][0], windows.first
    blanks = ids == tokenizer.piece_id("\u2581")
    start, end = np.zeros((2, 1, len(ids)), np.float32)
    start[0, first] = end[0, np.flatnonzero(blanks)[-1]] = 9
    logits = {"start_logits": start, "end_logits": end}
    (best,) = windows.answers(logits, 1, False, 15, align_to_words=False)
    assert best["answer"].strip() == "of"
    (best,) = windows.answers(logits, 1, False, 15, align_to_words=True)
    assert best["answer"] == context
