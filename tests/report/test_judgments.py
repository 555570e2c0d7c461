"""Where an answer is lost, the outcomes of the official evaluation, tallies and bounds."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.evaluation import nq_eval
from nq.evaluation.evaluate import example_gold
from nq.evaluation.nq_eval import Verdict
from nq.records import Annotation, Example, Prediction, Span, YesNo
from nq.report.analysis import COUNTS, analyse, tally_fields
from nq.report.judgments import Case, Judgment, Stage, StageOutputs, judgments
from tests.report.examples import FIRST, SECOND, THIRD, annotation, cases, page, predicted, stages

SHORT = Span(10, 12)
GOLD = annotation(SECOND, SHORT)
HALVES = (tuple(range(11)), tuple(range(11, 24)))
_, CONTEXTS, WINDOWS, POSITIONS, DECISION = Stage


def judged(example: Example, answer: Prediction, outputs: StageOutputs) -> tuple[Judgment, ...]:
    decisions = nq_eval.decisions_of_one(example_gold(example), answer)
    return tuple(judgments(example, decisions, outputs).values())


@pytest.mark.parametrize(
    ("outputs", "long", "short"),
    [
        (stages(positions=[(10, 11)]), DECISION, DECISION),
        (stages(max_contexts=2), CONTEXTS, CONTEXTS),
        (stages(windows=HALVES), DECISION, WINDOWS),
        (stages(windows=[range(8), range(16, 24)]), WINDOWS, WINDOWS),
        (stages(positions=[(10, 12), (9, 11)]), DECISION, POSITIONS),
        (stages(positions=[(1, 3), (6, 10)]), POSITIONS, POSITIONS),
    ],
)
def test_stage_that_loses_an_answer(outputs: StageOutputs, long: Stage, short: Stage) -> None:
    for answer, outcome in (
        (predicted(), Verdict.MISSED),
        (predicted(FIRST, Span(1, 3)), Verdict.WRONG),
    ):
        both = judged(page(GOLD), answer, outputs)
        assert [j.outcome for j in both] == [outcome, outcome]
        assert [j.lost for j in both] == [long, short]


@pytest.mark.parametrize(
    ("gold", "outputs", "lost"),
    [
        (annotation(SECOND, SHORT, Span(13, 14)), stages(positions=[(10, 11), (13, 13)]), DECISION),
        (annotation(SECOND, SHORT, Span(13, 14)), stages(positions=[(10, 11)]), POSITIONS),
        (annotation(SECOND, SHORT, Span(1, 2)), stages(max_contexts=2), CONTEXTS),
        (annotation(yes_no=YesNo.NO), stages(positions=[(1, 1)]), POSITIONS),
        (annotation(None, yes_no=YesNo.NO), stages(max_contexts=1, positions=[]), DECISION),
    ],
    ids=lambda value: "" if isinstance(value, StageOutputs | Annotation) else str(value),
)
def test_stage_that_loses_a_short_answer(
    gold: Annotation, outputs: StageOutputs, lost: Stage
) -> None:
    assert judged(page(gold), predicted(), outputs)[1].lost is lost


def test_a_passage_that_gold_does_not_name_is_lost_by_the_decision() -> None:
    example = replace(page(annotation(None, yes_no=YesNo.YES)), answers=("yes",))
    assert [one.lost for one in judged(example, predicted(), stages())] == [DECISION, DECISION]
    assert judged(example, predicted(FIRST), stages())[0].outcome is Verdict.RIGHT


SPANS = st.sampled_from([SHORT, Span(9, 10), Span(1, 3), Span(17, 22), Span(6, 10)])
BLOCKS = st.none() | st.sampled_from([FIRST, SECOND, THIRD, Span(1, 3)])
ANNOTATIONS = st.lists(
    st.builds(lambda b, s: annotation(b, *s), BLOCKS, st.lists(SPANS, max_size=2))
    | st.builds(lambda b, y: annotation(b, yes_no=y), BLOCKS, st.sampled_from(YesNo)),
    min_size=1,
    max_size=5,
)
LABELS = st.builds(lambda b, s: predicted(b, *s), BLOCKS, st.lists(SPANS, max_size=1)) | st.builds(
    lambda b: predicted(b, yes_no=YesNo.NO), BLOCKS
)
OUTPUTS = st.builds(
    stages,
    st.integers(1, 5),
    st.sampled_from([HALVES, (tuple(range(24)),), (tuple(range(5, 12)),)]),
    st.none() | st.lists(st.sampled_from([(10, 11), (9, 9), (1, 2), (17, 21), (6, 9)])),
)


@given(st.lists(st.tuples(ANNOTATIONS, LABELS, OUTPUTS), min_size=1))
def test_the_tally_equals_the_official_evaluation(
    examples: list[tuple[list[Annotation], Prediction, StageOutputs]],
) -> None:
    both = [judged(page(*gold), answer, outputs) for gold, answer, outputs in examples]
    metrics: dict[str, Any] = nq_eval.score(
        {i: example_gold(page(*gold)) for i, (gold, _, _) in enumerate(examples)},
        {i: answer for i, (_, answer, _) in enumerate(examples)},
        one_annotator=True,
    )
    for kind, of_kind in zip(("long", "short"), zip(*both, strict=True), strict=True):
        total = tally_fields(of_kind)
        for name in ("precision", "recall", "f1"):
            expected = metrics[f"{kind}-answer-{name}"]
            assert (total[name] or 0) == pytest.approx(expected), (kind, name)
        for j in of_kind:
            assert (j.lost is not None) == (j.outcome in (Verdict.WRONG, Verdict.MISSED))


@pytest.mark.slow
@given(cases())
def test_splits_add_up_and_bounds_decrease_to_the_recall_of_the_run(
    some_cases: list[Case],
) -> None:
    result = analyse(some_cases)
    json.dumps(result.to_dict())
    assert str(result)
    for kind, part in result.kinds.items():
        for values in result.splits.values():
            for name in COUNTS:
                parts = (getattr(tallies[kind], name) for tallies in values.values())
                assert sum(parts) == getattr(part, name)
        n_gold, bounds = part.right + part.wrong + part.missed, part.bounds.values()
        recalls = [1.0 if n_gold else 0.0, *(b.recall for b in bounds), part.recall or 0.0]
        assert recalls == sorted(recalls, reverse=True)
        assert all((part.f1 or 0.0) <= b.f1 + 1e-9 for b in bounds)
        lost = sum(b.lost for b in bounds) + sum(part.decision.values())
        assert lost == n_gold - part.right
