"""Tests the measure of reading on pages whose best spans are known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import nq
from experiments import reading
from nq.records import Annotation, Candidate, Example, Span, WindowScores, YesNo

pytestmark = pytest.mark.extended

WORDS = ["alpha", "beta", "gamma", "delta", "the", "epsilon", "zeta"]
GOLD, OTHER = Span(0, 4), Span(4, 7)


def example(*annotations: Annotation) -> Example:
    return Example(
        example_id=2,
        question="which",
        tokens=WORDS,
        is_html=[False] * len(WORDS),
        candidates=(Candidate(GOLD, True), Candidate(OTHER, True)),
        annotations=annotations,
    )


def scores(*spans: tuple[int, int, float]) -> WindowScores:
    """Returns one window for each pair of first and last token and score."""
    column = np.array(spans)
    doc, logit = column[:, :2].astype(np.int32), column[:, 2:].astype(np.float32)
    start, end, n = doc[:, :1], doc[:, 1:], len(column)
    zeros = np.zeros((n, 5), np.float32)
    return WindowScores(start, start + 5, logit, end, end + 5, logit, zeros[:, :2], zeros)


def annotation(long: Span | None, *shorts: Span) -> Annotation:
    return Annotation(long, None, shorts, YesNo.NONE)


SHORT = annotation(GOLD, Span(1, 3))


def test_the_best_span_in_the_gold_block_is_compared_with_all_gold_texts() -> None:
    of_two = example(SHORT, annotation(GOLD, Span(1, 2)))
    best_elsewhere = scores((5, 6, 9.0), (1, 2, 3.0), (0, 0, 1.0))
    assert reading.read(of_two, best_elsewhere, 30) == reading.Reading(True, 1.0, False)
    half_right = scores((2, 3, 3.0), (5, 6, 2.0))
    assert reading.read(of_two, half_right, 30) == reading.Reading(False, 0.5, True)


def test_the_command_prints_the_shares(
    tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--data", str(nq.bundled_sample()), "--model", str(tiny_model), "--half", "all"]
    assert reading.main([*options, "--limit", "6", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert 0 < result["short_questions"] <= result["long_questions"] <= 6
    assert 0 <= result["exact_match_in_gold_block"] <= result["f1_in_gold_block"] <= 1
    assert reading.main([*options, "--limit", "0"]) != 0
