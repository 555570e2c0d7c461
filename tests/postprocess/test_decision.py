"""Tests of the decision rules of the originals: slow versions of their steps, golden values."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.config import DecisionConfig
from nq.evaluation import official
from nq.formats.outputs import encode_prediction
from nq.postprocess.decision import RULES, decide
from nq.records import Candidate, Example, Prediction, Span
from tests.postprocess import synthetic_pages

seeds = st.integers(0, 2**32 - 1)
each_rule = pytest.mark.parametrize("rule", RULES)


def predict(rule: str, example: Example, logits: synthetic_pages.Logits) -> Prediction:
    k = min(RULES[rule].k, logits.doc.shape[1])
    scores = synthetic_pages.window_scores(logits, k, RULES[rule].text_only)
    return decide(example, scores, DecisionConfig(rule)).prediction


def top(values: list[float], positions: list[int], n: int) -> list[int]:
    return sorted(positions, key=lambda i: (-values[i], i))[:n]


def block_around(example: Example, span: Span) -> Span | None:
    for candidate in example.candidates:
        inside = candidate.span.start <= span.start and span.end <= candidate.span.end
        if candidate.top_level and inside:
            return candidate.span
    return None


def bert_joint(example: Example, logits: synthetic_pages.Logits) -> Prediction:
    """Top 10 of all but [CLS], then those in text; 1 to 30 pieces; the best; always given.

    Equal scores are compared as the original's ``ScoreSummary``; of equal ones the first pair of
    the loops wins.
    """
    scored: list[tuple[tuple[float, float, float, list[float]], Span]] = []
    for window, doc in enumerate(logits.doc.tolist()):
        start, end = logits.start[window].tolist(), logits.end[window].tolist()
        for i in top(start, list(range(1, len(doc))), 10):
            for j in top(end, list(range(1, len(doc))), 10):
                if i <= j < i + 30 and doc[i] >= 0 and doc[j] >= 0:
                    span_sum, cls_sum = start[i] + end[j], start[0] + end[0]
                    key = span_sum - cls_sum, span_sum, cls_sum, logits.types[window].tolist()
                    scored.append((key, Span(doc[i], doc[j] + 1)))
    if not scored:
        return Prediction(example.example_id, None, -10_000.0, (), -10_000.0)
    (score, *_), span = max(scored, key=lambda one: one[0])
    return Prediction(example.example_id, block_around(example, span), score, (span,), score)


def port_spans(logits: synthetic_pages.Logits) -> dict[Span, float]:
    """Those in text, then top 5; 2 to 30 pieces above 0; of equal scores the last pair first.

    The loops go from the worst of the top positions to the best, the ends outside.
    """
    scored: list[tuple[float, int, Span]] = []
    for window, doc in enumerate(logits.doc.tolist()):
        start, end = logits.start[window], logits.end[window]
        text = [i for i in range(1, len(doc)) if doc[i] != -1]
        starts, ends = (
            sorted(top(values.tolist(), text, 5), key=lambda i: (values[i], i))
            for values in (start, end)
        )
        for j in ends:
            for i in starts:
                score = float((start[i] + end[j]) - (start[0] + end[0]))
                if i < j < i + 30 and score > 0:
                    scored.append((score, len(scored), Span(doc[i], doc[j] + 1)))
    spans: dict[Span, float] = {}
    for score, _, span in sorted(scored, reverse=True):
        spans.setdefault(span, score)
    return spans


def port_long(example: Example, spans: dict[Span, float]) -> tuple[Span | None, float]:
    """The block of the best span that has one, if the span's score is above 3."""
    for span, score in spans.items():
        block = block_around(example, span)
        if block is not None:
            return (block, score) if score > 3 else (None, -10_000.0)
    return None, -10_000.0


def kisialiou(example: Example, logits: synthetic_pages.Logits) -> Prediction:
    """The best span is the short answer if its score is above 8."""
    spans = port_spans(logits)
    best = [(span, score) for span, score in spans.items() if score > 8][:1]
    shorts, score = ((best[0][0],), best[0][1]) if best else ((), -10_000.0)
    return Prediction(example.example_id, *port_long(example, spans), shorts, score)


@given(seeds, st.sampled_from(["none", "some", "many"]))
def test_the_rules_of_the_originals_decide_as_slow_versions(seed: int, ties: str) -> None:
    example, logits = synthetic_pages.example(seed), synthetic_pages.logits(seed, ties != "none")
    if ties == "many":
        start, end, types = logits.start % 2, logits.end % 2, logits.types % 2
        logits = synthetic_pages.Logits(start, end, types, logits.doc)
    assert predict("bert-joint", example, logits) == bert_joint(example, logits)
    assert predict("kisialiou", example, logits) == kisialiou(example, logits)


@each_rule
@given(seeds, st.booleans(), st.floats(-20, 20), st.floats(-20, 20))
def test_every_example_has_a_prediction_that_the_evaluation_accepts(
    rule: str, seed: int, ties: bool, long_threshold: float, short_threshold: float
) -> None:
    example, logits = synthetic_pages.example(seed), synthetic_pages.logits(seed, ties)
    k = min(RULES[rule].k, 24)
    scores = synthetic_pages.window_scores(logits, k, RULES[rule].text_only)
    config = DecisionConfig(rule, 30, long_threshold, short_threshold)
    prediction = decide(example, scores, config).prediction
    assert prediction.example_id == example.example_id
    assert math.isfinite(prediction.long_score) and math.isfinite(prediction.short_score)
    tops = {candidate.span for candidate in example.candidates if candidate.top_level}
    assert prediction.long is None or prediction.long in tops
    if any(span.end <= span.start for span in prediction.shorts):
        assert rule != "default" and (np.diff(logits.doc) < -1).any()
        return
    assert official.prediction(encode_prediction(prediction)).answered == prediction.answered


# --- decisions whose expected values come from the originals' own code, not from our rules

BLOCK, LENGTH = Span(0, 40), 20
OFFSET = 4
"""Position of the first document token in each window."""


@dataclass(frozen=True)
class Window:
    """Logits of one window by position; all others are far below."""

    start: Mapping[int, float]
    end: Mapping[int, float]
    cls: tuple[float, float] = (0.0, 0.0)


def decided(
    rule: str, windows: Sequence[Window], token_map: list[int], *candidates: Span
) -> tuple[Span | None, float, tuple[Span, ...], float]:
    """Returns the decision of a rule; ``token_map`` is that of every window."""
    blocks = [Candidate(span, top_level=True) for span in candidates or (BLOCK,)]
    example = Example(7, "why", [f"t{i}" for i in range(40)], [False] * 40, blocks)
    start, end = np.full((2, len(windows), LENGTH), -100.0, np.float32)
    for n, window in enumerate(windows):
        start[n, [0, *window.start]] = [window.cls[0], *window.start.values()]
        end[n, [0, *window.end]] = [window.cls[1], *window.end.values()]
    doc, types = np.array([token_map] * len(windows)), np.zeros((len(windows), 5), np.float32)
    given = predict(rule, example, synthetic_pages.Logits(start, end, types, doc))
    return given.long, given.long_score, given.shorts, given.short_score


NORMAL = [-1] * OFFSET + list(range(LENGTH - OFFSET))
EQUAL = [-1] * OFFSET + list(range(OFFSET, LENGTH))
MINIMAL = Window({5: 6, 15: 6.5}, {6: 6, 16: 6.5})
BEST_END_FIRST = Window({12: 5, 4: 4}, {13: 4, 5: 5})
SPAN_SUMS = [Window({5: 5}, {5: 5}), Window({6: 6}, {6: 6}, (1.0, 1.0))]


@pytest.mark.parametrize(
    ("rule", "windows", "token_map", "short", "score"),
    [
        ("kisialiou", [MINIMAL], NORMAL, Span(11, 13), 13.0),  # from the code after f95f9d3
        # the last of equal pairs is the answer of the port
        ("kisialiou", [Window({5: 6}, {6: 6}), Window({7: 6}, {8: 6})], NORMAL, Span(3, 5), 12.0),
        ("kisialiou", [BEST_END_FIRST], NORMAL, Span(0, 2), 9.0),
        # the larger span sum wins between windows of the original, the best start within one
        ("bert-joint", SPAN_SUMS, NORMAL, Span(2, 3), 10.0),
        ("bert-joint", [BEST_END_FIRST], EQUAL, Span(12, 14), 9.0),
    ],
)
def test_the_answers_of_the_originals(
    rule: str, windows: list[Window], token_map: list[int], short: Span, score: float
) -> None:
    assert decided(rule, windows, token_map) == (BLOCK, score, (short,), score)


@pytest.mark.parametrize("rule", ["bert-joint", "kisialiou"])
def test_pairs_that_run_backwards_are_kept(rule: str) -> None:
    """Two candidates out of page order: the token map falls from 19 to 0 in the window."""
    token_map = [-1] * OFFSET + [18, 19, 0, 1, *range(20, LENGTH + 16 - OFFSET)]
    window = Window({5: 6}, {7: 6})
    long, _, shorts, score = decided(rule, [window], token_map, Span(18, 20), Span(0, 2))
    assert (long, shorts, score) == (Span(18, 20), (Span(19, 2),), 12.0)
