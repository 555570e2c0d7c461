"""Tests exact match and F1 on cases whose scores follow by hand from SQuAD's definition."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.evaluation.text_match import Rule, metrics, normalize, score_text

TEXT = st.text(st.sampled_from("aA nthe.'U 7"), max_size=12)


@pytest.mark.parametrize(
    ("golds", "answer", "exact", "f1"),
    [
        (["Denver Broncos"], "Denver Broncos", True, 1),
        (["Denver Broncos"], " the\tDENVER  broncos!", True, 1),  # case, article, blanks, "!"
        (["Denver Broncos"], "Broncos", False, 2 / 3),  # P = 1, R = 1/2
        (["Denver Broncos"], "Carolina Panthers", False, 0),
        (["Denver Broncos", "Broncos"], "broncos", True, 1),  # the best of several
        (["one one two"], "one two two", False, 2 / 3),  # a multiset: one and two in common
        (["U.S."], "us", True, 1),
        (["full-time job"], "full time job", False, 0.4),  # "fulltime" is one word
        (["an anthem"], "anthem", True, 1),
        (["\u201cMoon\u201d"], "Moon", False, 0),  # only ASCII punctuation is removed
        ([], "", True, 1),  # no answer
        (["Denver"], "", False, 0),
        ([], "the", True, 1),  # empty after normalization
        (["the", "Moon"], "", False, 0),  # the gold that is empty does not count
    ],
)
def test_golden_cases(golds: list[str], answer: str, exact: bool, f1: float) -> None:
    found = score_text(golds, answer)
    assert found.exact_match is exact
    assert found.f1 == pytest.approx(f1)


NFC, NFD = (unicodedata.normalize(form, "Åmål") for form in ("NFC", "NFD"))


@pytest.mark.parametrize(
    ("golds", "answer", "squad", "nq_open"),
    [
        ([NFC], NFD, False, True),
        (["Rh positive", "A+"], "A+", False, True),
        (["*"], "", True, True),  # the evaluator of EfficientQA says so, too
        (["the semicolon", ";"], "semicolon", True, True),
        ([], "", True, True),
    ],
)
def test_rules_differ_in_unicode_forms_and_in_answers_without_words(
    golds: list[str], answer: str, squad: bool, nq_open: bool
) -> None:
    for rule, exact in ((Rule.SQUAD, squad), (Rule.NQ_OPEN, nq_open)):
        score = score_text(golds, answer, rule)
        assert (score.exact_match, score.f1 == 1, score.has_answer) == (exact, exact, bool(golds))


@given(TEXT, TEXT)
def test_scores_are_symmetric_and_consistent(first: str, second: str) -> None:
    there, back = score_text([first], second), score_text([second], first)
    assert (there.exact_match, there.f1) == (back.exact_match, back.f1)
    assert 0 <= there.f1 <= 1
    assert not there.exact_match or there.f1 == 1
    assert score_text([first], normalize(first)).exact_match
    assert normalize(normalize(first)) == normalize(first)


def test_metrics_are_means_of_both_kinds() -> None:
    scores = [
        score_text(["a b"], "b"),
        score_text(["x y"], "y"),
        score_text([], ""),
        score_text([], "z"),
    ]
    assert metrics(scores) == {
        **{"squad_exact_match": 0.5, "squad_f1": pytest.approx((1 + 2 / 3 + 1 + 0) / 4)},
        **{"squad_n": 4, "squad_answerable_n": 2, "squad_unanswerable_n": 2},
        **{"squad_answerable_exact_match": 0.5, "squad_answerable_f1": pytest.approx(5 / 6)},
        **{"squad_unanswerable_exact_match": 0.5, "squad_unanswerable_f1": 0.5},
    }
    assert metrics(scores[:2]).keys() == {"squad_exact_match", "squad_f1", "squad_n"}
    assert metrics([]) == {}
