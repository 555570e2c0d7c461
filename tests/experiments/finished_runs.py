"""A page of three blocks, and cases by hand and by chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from experiments.errors.losses import Case, Kept, Outcome, Stage, Verdict
from experiments.errors.traits import TRAITS
from nq.config import WindowConfig
from nq.evaluation.labels import Label
from nq.evaluation.labels import Span as Range
from nq.postprocess.spans import Pairs
from nq.preprocess.contexts import contexts
from nq.records import Annotation, Candidate, Example, Span, YesNo

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
NOTHING = Annotation(None, None, (), YesNo.NONE)
WHOLE = (tuple(range(24)),)


def annotation(long: Span | None = SECOND, *shorts: Span, yes_no: YesNo = YesNo.NONE) -> Annotation:
    return Annotation(long, None, shorts, yes_no)


def page(*annotations: Annotation) -> Example:
    return replace(PAGE, annotations=annotations)


def label(long: Span | None = None, *shorts: Span, yes_no: str = "none") -> Label:
    def found(span: Span) -> Range:
        return Range(start_token=span.start, end_token=span.end)

    return Label(found(long) if long else Range(), tuple(map(found, shorts)), yes_no, 0.5, 0.25)


def kept(
    max_contexts: int = 48,
    windows: Sequence[Sequence[int]] = WHOLE,
    positions: Sequence[tuple[int, int]] | None = None,
) -> Kept:
    """What is kept: so many contexts, windows of these tokens, pairs of these tokens."""
    length = max(map(len, windows))
    token_map = np.array([[*row, *[-1] * (length - len(row))] for row in windows])
    found = None
    if positions is not None:
        start, end = np.array(positions, int).reshape(-1, 2).T
        found = Pairs(np.zeros(len(start)), start * 0, start, end, start, end)
    return Kept(contexts(PAGE, WindowConfig(max_contexts=max_contexts)), token_map, found)


def verdicts() -> st.SearchStrategy[Verdict]:
    """Verdicts by chance, lost where they can be."""

    def lost(outcome: Outcome) -> st.SearchStrategy[Verdict]:
        to_lose = outcome in (Outcome.WRONG, Outcome.MISSED)
        return st.builds(
            Verdict,
            st.just(outcome),
            st.floats(0, 1),
            st.sampled_from(Stage) if to_lose else st.none(),
            st.text(),
            st.text(),
        )

    return st.sampled_from(Outcome).flatmap(lost)


def cases() -> st.SearchStrategy[list[Case]]:
    """Cases by chance; some of a source."""
    fixed = {trait: st.sampled_from(values) for trait, values in TRAITS.items() if values}
    traits = st.fixed_dictionaries(fixed, optional={"source": st.text(min_size=1)})
    return st.lists(st.builds(Case, st.integers(), st.text(), traits, verdicts(), verdicts()))
