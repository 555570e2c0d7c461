"""Damage to the files of a tiny run and a tiny training: some of the cases of the experiment."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from experiments import damage
from experiments.damage import (
    CUT,
    EMPTIED,
    FLIPPED,
    REFUSED,
    SEVERAL_LINES,
    TRACEBACK,
    WHOLE,
    WRONG,
    Case,
    Outcome,
)

CHOSEN = {
    "finished": {
        "windows-*/*.tfrecord": FLIPPED,
        "windows-*/examples.npy": EMPTIED,
        "baseline-*/job.json": FLIPPED,
        "baseline-*/metrics.json": CUT,
        "baseline-*/scores/*-000000001.npz": FLIPPED,
    },
    "interrupted": {
        "*/results/*-000000001.npz": FLIPPED,
        "grappler-*/results/request.json": EMPTIED,
    },
    "training": {
        "training_state.json": FLIPPED,
        "*-training_state.npz": CUT,
        "*.tfrecord": FLIPPED,
    },
    "teacher": {"part-000000.npz": FLIPPED, "request.json": CUT},
    "model": {"model.safetensors": CUT, "config.json": EMPTIED},
}
"""Patterns of files, and how they are damaged."""


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOSEN)
def test_damage_is_made_good_or_refused_in_one_line(
    name: str, tiny_model: Path, tmp_path: Path
) -> None:
    def damages(path: Path) -> Sequence[str]:
        return [kind for pattern, kind in CHOSEN[name].items() if path.match(pattern)]

    damage.make_start(tmp_path / "start", tiny_model, limit=2)
    draw, start = random.Random(0), tmp_path / "start"
    cases = list(damage.cases(name, start, tmp_path / name, damage.run_here, damages, draw))
    assert len(cases) >= len(CHOSEN[name])
    for case in cases:
        assert case.verdict == (REFUSED if name == "model" else WHOLE), case
        lines = [line for line in case.lines if Path(case.file).name in line]
        assert len(lines) == 1, case


UNDISTURBED = Outcome(0, ["nq: note"], {"a": b"1"})


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (Outcome(0, ["nq: warning: x"], {"a": b"1"}), WHOLE),
        (Outcome(0, [], {"a": b"2"}), WRONG),
        (Outcome(0, [], {}), WRONG),
        (Outcome(1, ["nq: note", "nq: warning: x", "nq: error: y"], {}), REFUSED),
        (Outcome(1, [], {}), SEVERAL_LINES),
        (Outcome(1, ["nq: error: y", "more"], {}), SEVERAL_LINES),
        (Outcome(1, ["Traceback (most recent call last):"], {}), TRACEBACK),
        (Outcome(-9, [], {}), TRACEBACK),
    ],
)
def test_the_verdict_on_an_outcome(outcome: Outcome, verdict: str) -> None:
    assert outcome.verdict(UNDISTURBED) == verdict


@pytest.mark.parametrize("kind", [CUT, EMPTIED, FLIPPED])
def test_each_kind_of_damage_changes_a_file(tmp_path: Path, kind: str) -> None:
    path, data = tmp_path / "file", bytes(range(100))
    path.write_bytes(data)
    damage.damage(path, kind, random.Random(1))
    damaged = path.read_bytes()
    if kind == FLIPPED:
        (different,) = [a ^ b for a, b in zip(data, damaged, strict=True) if a != b]
        assert different.bit_count() == 1
    else:
        assert damaged == data[: 50 if kind == CUT else 0]


def test_the_table_has_a_row_for_each_file() -> None:
    cases = [
        Case("finished", "a", CUT, WHOLE, []),
        Case("finished", "a", FLIPPED, WHOLE, []),
        Case("finished", "a", FLIPPED, WHOLE, []),
        Case("model", "b", FLIPPED, WRONG, []),
    ]
    assert damage.table(cases).splitlines()[2:] == [
        "| finished | a | same result |  | 2 x same result |",
        "| model | b |  |  | WRONG RESULT |",
    ]
