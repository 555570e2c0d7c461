"""Tests the lines that commands print for bad records."""

from __future__ import annotations

from pathlib import Path

import pytest

from nq.preprocess.store import encode_dead_letter
from nq.records import DeadLetter, Source
from nq.report.skipped import dead_letter_lines


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        ([], []),
        (["bad \x1b"], ["1 bad record is in PATH; the reason:", "  a.csv, line 1: bad \\u001b"]),
        (["x", "y"], ["2 bad records are in PATH; the first reason:", "  a.csv, line 1: x"]),
        (
            ["x", "page 'a' is none of the 3 pages", "page 'b c' is none of the 4 pages"],
            [
                "3 bad records are in PATH; the most frequent reason (2 times):",
                "  a.csv, line 2: page 'a' is none of the 3 pages",
            ],
        ),
    ],
)
def test_the_most_frequent_kind_of_reason_is_shown(
    reasons: list[str], expected: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "skipped.jsonl"
    letters = (DeadLetter(Source(0, "a.csv", n), why, "") for n, why in enumerate(reasons, 1))
    path.write_text("".join(f"{encode_dead_letter(letter)}\n" for letter in letters))
    assert dead_letter_lines(path) == [line.replace("PATH", str(path)) for line in expected]
