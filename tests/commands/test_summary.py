"""Tests the summary of a run: which lines it has, and the figures in them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from nq.commands.summary import summary
from nq.evaluation.answers import AnswerRow
from nq.evaluation.gate import Gate, Parity
from nq.runs.result import Result

METRICS = {
    **{"long-answer-f1": 0.5, "long-best-threshold-f1": 0.6},
    **{"short-answer-f1": 0.25, "short-best-threshold-f1": 0.75},
    **{"micro_f1": 0.4, "micro_f1_best": 0.65},
}
GATE = Gate(0.4, 0.41, loss=0.0244, low=-0.01, high=0.06, questions=40, max_loss=0.05)
RESULT = Result(
    folder=Path("runs/grappler-1"),
    profile="grappler",
    device="CPU",
    precision="float32",
    examples=3,
    windows=20,
    resumed_windows=0,
    read_windows=20,
    float32_windows=0,
    rescored=0,
    windows_per_s=12.34,
    answered=2,
    dead_letters=1,
    without_gold=0,
    truncated_pages=0,
    unread_blocks=0,
    peak_memory_bytes=5 << 20,
    metrics=METRICS,
    time={"load_s": 1.0, "predict_s": 2.5, "rescore_s": 0.0, "total_s": 3.5, "preprocess_s": 0.75},
    run_bytes=1536,
    windows_bytes=3 << 20,
)


def test_the_figures_of_a_plain_run() -> None:
    counts, scores, times, files = summary(RESULT).split("\n")
    assert counts.startswith("3 questions, 2 answered, 1 record skipped, 20 windows")
    figures = [float(figure) for figure in re.findall(r"\d\.\d{3}", scores)]
    assert figures == [0.5, 0.6, 0.25, 0.75, 0.4, 0.65]
    assert times == "3.5 s (load 1.0, predict 2.5); 12.3 windows/s; peak memory 5 MiB"
    assert files.startswith("written to runs/grappler-1 (1.5 KiB, and 3.0 MiB of windows")
    assert "skipped" not in summary(replace(RESULT, dead_letters=0))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"metrics": {}}, "not scored"),
        ({"profile": "mixed+prune", "read_windows": 7}, "7 of the windows were computed"),
        ({"resumed_windows": 6, "parts": 3}, "resumed: an earlier run scored 6 windows"),
        ({"how_to_open": "nq ui"}, "see the run: nq ui"),
        ({"profile": "grappler+xla"}, "xla usually gains nothing here (XLA is made for GPUs); the"),
        (
            {"parity": Parity("baseline", 40, 1, 0.0123, 0.004, {"micro_f1": -0.01})},
            "against baseline: 1 of 40 answers changed (2.5%), micro_f1 by -0.0100; best logits "
            "differ by 0.012",
        ),
        (
            {"parity": Parity("baseline", 40, 1, None, None, {}, GATE)},
            "gate: micro-F1 0.4000 against 0.4100, relative loss 2.4% [90%: -1.0% to 6.0%]",
        ),
    ],
)
def test_a_line_is_present_only_where_there_is_something_to_report(
    changes: dict[str, object], line: str
) -> None:
    assert f"\n{line}" in summary(replace(RESULT, **changes))  # type: ignore[arg-type]
    assert f"\n{line}" not in summary(RESULT)


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.parametrize(
    ("answer", "expected", "shown"),
    [
        ("26", ("42.195", "42.195 kilometers"), "42.195 | 42.195 kilometers"),
        ("", ("Kibo; Mawenzi; Shira",), "Kibo; Mawenzi; Shira"),
        ("Olkhon", (), "(no answer)"),
        ("Olkhon", ("Olkhon", "the Olkhon"), "Olkhon (another span) | the Olkhon"),
        ("Olkhon", ("",), "(no words)"),
        ("Olkhon", ("a\x1b[31m\nb",), r"a\u001b[31m\u000ab"),
        ("Olkhon", ("deep " * 9, "lake " * 9), "deep " * 9 + " | lake lake l…"),
    ],
)
def test_what_was_expected_stands_below_a_wrong_answer(
    answer: str, expected: tuple[str, ...], shown: str
) -> None:
    result = replace(RESULT, rows=(AnswerRow("what", answer, False, expected),))
    wrong, line, *_ = summary(result).split("\n")
    assert wrong[60:67] == "WRONG  "
    assert line == f"{'expected':>65}  {shown}"


@pytest.mark.parametrize(
    ("columns", "width"), [(0, 127), (10, 40), (40, 40), (41, 41), (80, 80), (126, 126), (500, 127)]
)
def test_the_table_fits_the_terminal(
    columns: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    long = "word " * 50
    rows = (
        AnswerRow(long, long, True),
        AnswerRow(long, long, False, (long, long)),
        AnswerRow("who", "x", None),
    )
    *lines, unknown = summary(replace(RESULT, rows=rows)).split("\n")[:4]
    assert [len(line) for line in lines] == [width] * 3
    start = lines[0].index("right") + len("right  ")
    assert lines[1][start - 7 : start] == "WRONG  " and unknown[start:] == "x"
    assert lines[2][:start] == f"{'expected':>{start - 2}}  "
    assert {line[-1] for line in lines} == {"…"}
