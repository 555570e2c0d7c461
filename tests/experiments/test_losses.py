"""Every stage loses what it is made to lose, and only that."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.errors.losses import MAX_CHARS, Kept, Outcome, Stage, verdicts
from experiments.errors.report import tally
from nq.evaluation import nq_eval
from nq.evaluation.labels import Label
from nq.records import Annotation, Span, YesNo
from nq.runs.scoring import gold_label
from tests.experiments.finished_runs import (
    FIRST,
    NOTHING,
    SECOND,
    THIRD,
    annotation,
    kept,
    label,
    page,
)

SHORT = Span(10, 12)
GOLD = annotation(SECOND, SHORT)
HALVES = (tuple(range(11)), tuple(range(11, 24)))
CONTEXTS, WINDOWS, POSITIONS, DECISION = Stage


@pytest.mark.parametrize(
    ("found", "long", "short"),
    [
        (kept(), DECISION, DECISION),
        (kept(positions=[(10, 11)]), DECISION, DECISION),
        (kept(max_contexts=2), CONTEXTS, CONTEXTS),
        (kept(max_contexts=2, positions=[(10, 11)]), CONTEXTS, CONTEXTS),
        (kept(windows=HALVES), DECISION, WINDOWS),
        (kept(windows=[range(8), range(12, 24)]), DECISION, WINDOWS),
        (kept(windows=[range(8), range(16, 24)]), WINDOWS, WINDOWS),
        (kept(positions=[(10, 12), (9, 11)]), DECISION, POSITIONS),
        (kept(positions=[(1, 3), (6, 10)]), POSITIONS, POSITIONS),
        (kept(positions=[]), POSITIONS, POSITIONS),
    ],
)
def test_where_an_answer_is_lost(found: Kept, long: Stage, short: Stage) -> None:
    for answer, outcome in (
        (label(), Outcome.MISSED),
        (label(FIRST, Span(1, 3)), Outcome.WRONG),
    ):
        mine = verdicts(page(GOLD), answer, found)
        assert [v.outcome for v in mine] == [outcome, outcome]
        assert [v.lost for v in mine] == [long, short]


@pytest.mark.parametrize(
    ("gold", "found", "lost"),
    [
        (annotation(SECOND, SHORT, Span(13, 14)), kept(positions=[(10, 11), (13, 13)]), DECISION),
        (annotation(SECOND, SHORT, Span(13, 14)), kept(positions=[(10, 11)]), POSITIONS),
        (annotation(SECOND, SHORT, Span(1, 2)), kept(max_contexts=2), CONTEXTS),
        (annotation(SECOND, Span(5, 10)), kept(), CONTEXTS),
        (annotation(SECOND, Span(14, 16)), kept(), CONTEXTS),
        (annotation(yes_no=YesNo.YES), kept(positions=[(9, 9)]), DECISION),
        (annotation(yes_no=YesNo.NO), kept(positions=[(1, 1)]), POSITIONS),
        (annotation(yes_no=YesNo.NO), kept(max_contexts=2), CONTEXTS),
        (annotation(None, yes_no=YesNo.NO), kept(max_contexts=1, positions=[]), DECISION),
    ],
    ids=lambda value: "" if isinstance(value, Kept | Annotation) else str(value),
)
def test_where_a_short_answer_is_lost(gold: Annotation, found: Kept, lost: Stage) -> None:
    assert verdicts(page(gold), label(), found)[1].lost is lost


def test_a_block_that_is_no_context_is_lost_at_once() -> None:
    nested = annotation(Span(1, 3))
    assert verdicts(page(nested), label(FIRST), kept())[0].lost is CONTEXTS


def test_the_annotator_that_comes_farthest_counts() -> None:
    far, near = annotation(FIRST, Span(1, 2)), annotation(THIRD, Span(18, 19))
    found = kept(max_contexts=2, positions=[(3, 3)])
    for gold in ((far, near), (near, far), (near, NOTHING, far)):
        long, short = verdicts(page(*gold), label(), found)
        assert (long.lost, short.lost) == (DECISION, POSITIONS)


def test_right_answers_are_not_lost_whatever_is_kept() -> None:
    found = kept(max_contexts=1, windows=[(-1,)], positions=[])
    long, short = verdicts(page(GOLD), label(SECOND, SHORT), found)
    assert (long.outcome, long.lost) == (short.outcome, short.lost) == (Outcome.RIGHT, None)


def test_without_gold_there_is_nothing_to_lose() -> None:
    alone = page(GOLD, NOTHING, NOTHING, NOTHING, NOTHING)  # one of five is not enough
    for answer, outcome in ((label(), Outcome.NULL), (label(FIRST, SHORT), Outcome.EXTRA)):
        for v in verdicts(alone, answer, kept()):
            assert (v.outcome, v.lost, v.gold) == (outcome, None, "")


def test_texts_are_those_of_the_page() -> None:
    gold = page(annotation(SECOND, SHORT, Span(13, 14)), annotation(SECOND, SHORT))
    long, short = verdicts(gold, label(FIRST, yes_no="yes"), kept())
    assert (long.gold, long.answer) == ("b9 b10 b11 b12 b13 b14", "a1 a2 a3 a4 a5 a6")
    assert (short.gold, short.answer) == ("b10 b11; b13 | b10 b11", "YES")
    assert (long.score, short.score) == (0.5, 0.25)


def test_long_texts_are_cut() -> None:
    gold = page(*(annotation(SECOND, Span(a, b)) for a in range(9, 15) for b in range(a + 1, 16)))
    text = verdicts(gold, label(), kept())[1].gold
    assert len(text) == MAX_CHARS
    assert text.endswith("…")


SPANS = st.sampled_from([SHORT, Span(9, 10), Span(1, 3), Span(17, 22), Span(6, 10)])
BLOCKS = st.none() | st.sampled_from([FIRST, SECOND, THIRD, Span(1, 3)])
ANNOTATIONS = st.lists(
    st.builds(lambda b, s: annotation(b, *s), BLOCKS, st.lists(SPANS, max_size=2))
    | st.builds(lambda b, y: annotation(b, yes_no=y), BLOCKS, st.sampled_from(YesNo)),
    min_size=1,
    max_size=5,
)
LABELS = st.builds(lambda b, s: label(b, *s), BLOCKS, st.lists(SPANS, max_size=1)) | st.builds(
    lambda b: label(b, yes_no="no"), BLOCKS
)
KEPT = st.builds(
    kept,
    st.integers(1, 5),
    st.sampled_from([HALVES, (tuple(range(24)),), (tuple(range(5, 12)),)]),
    st.none() | st.lists(st.sampled_from([(10, 11), (9, 9), (1, 2), (17, 21), (6, 9)])),
)


@given(st.lists(st.tuples(ANNOTATIONS, LABELS, KEPT), min_size=1))
def test_the_tally_is_the_evaluation(found: list[tuple[list[Annotation], Label, Kept]]) -> None:
    judged = [verdicts(page(*gold), answer, some) for gold, answer, some in found]
    metrics: dict[str, Any] = nq_eval.score(
        {i: [gold_label(a, None) for a in gold] for i, (gold, _, _) in enumerate(found)},
        {i: answer for i, (_, answer, _) in enumerate(found)},
        one_annotator=True,
    )
    for kind, mine in zip(("long", "short"), zip(*judged, strict=True), strict=True):
        total = tally(mine)
        for name in ("precision", "recall", "f1"):
            expected = metrics[f"{kind}-answer-{name}"]
            assert (getattr(total, name) or 0) == pytest.approx(expected), (kind, name)
        for v in mine:
            assert (v.lost is not None) == (v.outcome in (Outcome.WRONG, Outcome.MISSED))
