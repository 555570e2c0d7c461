"""Decisions whose expected values come from the originals' own code, not from our rules."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from nq.config import DecisionConfig
from nq.postprocess.decision import RULES, decide
from nq.records import Candidate, Example, Span, WindowScores
from tests.postprocess import synthetic_pages

LENGTH = 20
OFFSET = 4
"""Position of the first document token in each window."""


@dataclass(frozen=True)
class Window:
    """Logits of one window by position; all others are far below."""

    start: Mapping[int, float]
    end: Mapping[int, float]
    cls: tuple[float, float] = (0.0, 0.0)


def example(candidates: Sequence[Span] = (Span(0, 40),)) -> Example:
    tokens = [f"t{i}" for i in range(40)]
    blocks = [Candidate(span, top_level=True) for span in candidates]
    return Example(7, "why", tokens, [False] * len(tokens), blocks)


def window_scores(
    windows: Sequence[Window], rule: str, token_map: Sequence[int] | None = None
) -> WindowScores:
    """Returns the top k of the windows, as the rule needs them; -1 outside of the document."""
    doc = np.array([token_map or [-1] * OFFSET + list(range(LENGTH - OFFSET))] * len(windows))
    start, end = np.full((2, len(windows), LENGTH), -100.0, np.float32)
    for n, window in enumerate(windows):
        start[n, [0, *window.start]] = [window.cls[0], *window.start.values()]
        end[n, [0, *window.end]] = [window.cls[1], *window.end.values()]
    logits = synthetic_pages.Logits(start, end, np.zeros((len(windows), 5), np.float32), doc)
    return synthetic_pages.window_scores(logits, RULES[rule].k, RULES[rule].text_only)


def decided(
    rule: str, windows: Sequence[Window], token_map: Sequence[int] | None = None, **page: object
) -> tuple[Span | None, float, tuple[Span, ...], float]:
    scores = window_scores(windows, rule, token_map)
    config = DecisionConfig(rule=rule)
    given = decide(example(**page), scores, config).prediction  # type: ignore[arg-type]
    return given.long, given.long_score, given.shorts, given.short_score


BLOCK = Span(0, 40)
MINIMAL = Window({5: 6, 15: 6.5}, {6: 6, 16: 6.5})


def test_minimal_case_of_the_port() -> None:
    """Positions and document tokens differ by 3; from the code after f95f9d3."""
    token_map = [-1] * 3 + list(range(LENGTH - 3))
    assert decided("kisialiou", [MINIMAL]) == (BLOCK, 13.0, (Span(11, 13),), 13.0)
    assert decided("kisialiou", [MINIMAL], token_map) == (BLOCK, 13.0, (Span(12, 14),), 13.0)


def test_last_of_equal_pairs_is_the_answer_of_the_port() -> None:
    windows = [Window({5: 6}, {6: 6}), Window({7: 6}, {8: 6})]
    assert decided("kisialiou", windows)[2] == (Span(3, 5),)
    equal_logits = Window({9: 5, 6: 5}, {7: 5, 10: 5})
    assert decided("kisialiou", [equal_logits])[2] == (Span(5, 7),)
    best_end_first = Window({12: 5, 4: 4}, {13: 4, 5: 5})
    assert decided("kisialiou", [best_end_first])[2] == (Span(0, 2),)


def test_larger_span_sum_wins_between_windows_of_the_original() -> None:
    windows = [Window({5: 5}, {5: 5}), Window({6: 6}, {6: 6}, (1.0, 1.0))]
    assert decided("bert-joint", windows) == (BLOCK, 10.0, (Span(2, 3),), 10.0)


def test_best_start_wins_within_a_window_of_the_original() -> None:
    window = Window({12: 5, 4: 4}, {13: 4, 5: 5})
    token_map = [-1, -1, -1, -1, *range(4, LENGTH)]
    assert decided("bert-joint", [window], token_map) == (BLOCK, 9.0, (Span(12, 14),), 9.0)


@pytest.mark.parametrize("rule", ["bert-joint", "kisialiou"])
def test_pairs_that_run_backwards_are_kept(rule: str) -> None:
    """Two candidates out of page order: the token map falls from 19 to 0 in the window."""
    token_map = [-1] * OFFSET + [18, 19, 0, 1, *range(20, LENGTH + 16 - OFFSET)]
    window = Window({5: 6}, {7: 6})
    long, _, shorts, score = decided(
        rule, [window], token_map, candidates=[Span(18, 20), Span(0, 2)]
    )
    assert (long, shorts, score) == (Span(18, 20), (Span(19, 2),), 12.0)
