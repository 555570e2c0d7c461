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
EARLIER = [-1] * 3 + list(range(LENGTH - 3))
EQUAL = [-1] * OFFSET + list(range(OFFSET, LENGTH))
MINIMAL = Window({5: 6, 15: 6.5}, {6: 6, 16: 6.5})
BEST_END_FIRST = Window({12: 5, 4: 4}, {13: 4, 5: 5})


@pytest.mark.parametrize(
    ("rule", "windows", "token_map", "short", "score"),
    [
        ("kisialiou", [MINIMAL], None, Span(11, 13), 13.0),  # from the code after f95f9d3
        ("kisialiou", [MINIMAL], EARLIER, Span(12, 14), 13.0),
        # the last of equal pairs is the answer of the port
        ("kisialiou", [Window({5: 6}, {6: 6}), Window({7: 6}, {8: 6})], None, Span(3, 5), 12.0),
        ("kisialiou", [Window({9: 5, 6: 5}, {7: 5, 10: 5})], None, Span(5, 7), 10.0),
        ("kisialiou", [BEST_END_FIRST], None, Span(0, 2), 9.0),
        # the larger span sum wins between windows of the original, the best start within one
        (
            "bert-joint",
            [Window({5: 5}, {5: 5}), Window({6: 6}, {6: 6}, (1.0, 1.0))],
            *(None, Span(2, 3), 10.0),
        ),
        ("bert-joint", [BEST_END_FIRST], EQUAL, Span(12, 14), 9.0),
    ],
)
def test_the_answers_of_the_originals(
    rule: str, windows: list[Window], token_map: list[int] | None, short: Span, score: float
) -> None:
    assert decided(rule, windows, token_map) == (BLOCK, score, (short,), score)


@pytest.mark.parametrize("rule", ["bert-joint", "kisialiou"])
def test_pairs_that_run_backwards_are_kept(rule: str) -> None:
    """Two candidates out of page order: the token map falls from 19 to 0 in the window."""
    token_map = [-1] * OFFSET + [18, 19, 0, 1, *range(20, LENGTH + 16 - OFFSET)]
    window = Window({5: 6}, {7: 6})
    long, _, shorts, score = decided(
        rule, [window], token_map, candidates=[Span(18, 20), Span(0, 2)]
    )
    assert (long, shorts, score) == (Span(18, 20), (Span(19, 2),), 12.0)
