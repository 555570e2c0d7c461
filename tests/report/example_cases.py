"""A page of three blocks, stage outputs made by hand, and random cases."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from nq.config import WindowConfig
from nq.evaluation import labels
from nq.postprocess.spans import Pairs
from nq.preprocess.contexts import contexts
from nq.records import Annotation, Candidate, Example, Span, YesNo
from nq.report.judgments import KINDS, TRAITS, Case, Judgment, Stage, StageOutputs

FIRST, SECOND, THIRD = Span(0, 8), Span(8, 16), Span(16, 24)
TOKENS = [
    *("<P>", "a1", "a2", "a3", "a4", "a5", "a6", "</P>"),
    *("<Ul>", "b9", "b10", "b11", "b12", "b13", "b14", "</Ul>"),
    *("<Table>", "c17", "c18", "c19", "c20", "c21", "c22", "</Table>"),
]
PAGE = Example(
    5,
    "who is <b>",
    TOKENS,
    [t[0] == "<" for t in TOKENS],
    [
        Candidate(FIRST, True),
        Candidate(Span(1, 3), False),
        Candidate(SECOND, True),
        Candidate(THIRD, True),
    ],
)
NULL = Annotation(None, None, (), YesNo.NONE)
WHOLE_PAGE = (tuple(range(24)),)


def annotation(long: Span | None = SECOND, *shorts: Span, yes_no: YesNo = YesNo.NONE) -> Annotation:
    return Annotation(long, None, shorts, yes_no)


def page(*annotations: Annotation) -> Example:
    return replace(PAGE, annotations=annotations)


def label(long: Span | None = None, *shorts: Span, yes_no: str = "none") -> labels.Label:
    def encoded(span: Span) -> labels.LabelSpan:
        return labels.LabelSpan(start_token=span.start, end_token=span.end)

    long_span = encoded(long) if long else labels.LabelSpan()
    return labels.Label(long_span, tuple(map(encoded, shorts)), yes_no, 0.5, 0.25)


def stages(
    max_contexts: int = 48,
    windows: Sequence[Sequence[int]] = WHOLE_PAGE,
    positions: Sequence[tuple[int, int]] | None = None,
) -> StageOutputs:
    """Returns stage outputs: ``windows`` are document tokens; ends of ``positions`` inclusive."""
    length = max(map(len, windows))
    token_map = np.array([[*row, *[-1] * (length - len(row))] for row in windows])
    pairs = None
    if positions is not None:
        start, end = np.array(positions, int).reshape(-1, 2).T
        pairs = Pairs(np.zeros(len(start)), start * 0, start, end, start, end)
    return StageOutputs(contexts(PAGE, WindowConfig(max_contexts=max_contexts)), token_map, pairs)


def judgments() -> st.SearchStrategy[Judgment]:
    """Draws judgments, lost at some stage where the outcome allows it."""

    def of(has_gold: bool, predicted: bool, correct: bool) -> st.SearchStrategy[Judgment]:
        correct &= has_gold and predicted
        lost = st.sampled_from(Stage) if has_gold and not correct else st.none()
        decision = map(st.just, (has_gold, predicted, correct))
        return st.builds(Judgment, *decision, st.floats(0, 1), lost)

    return st.tuples(st.booleans(), st.booleans(), st.booleans()).flatmap(lambda flags: of(*flags))


def cases() -> st.SearchStrategy[list[Case]]:
    """Draws cases."""
    traits = st.fixed_dictionaries({name: st.sampled_from(v) for name, v in TRAITS.items()})
    both = st.fixed_dictionaries({kind: judgments() for kind in KINDS})
    return st.lists(st.builds(Case, traits, both))
