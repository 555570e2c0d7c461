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
    WHOLE,
)

pytestmark = pytest.mark.extended

CHOSEN = {
    "finished": {
        "windows-*/windows-*.tfrecord": FLIPPED,
        "windows-*/examples-*.tfrecord": EMPTIED,
    },
    "interrupted": {
        "*/unfinished/*-000000001.npz": FLIPPED,
        "grappler-*/unfinished/request.json": EMPTIED,
    },
    "training": {
        "training_state.json": FLIPPED,
        "*-training_state.npz": CUT,
        "*.tfrecord": FLIPPED,
    },
    "teacher": {"part-000000.npz": FLIPPED, "request.json": CUT},
    "model": {"model.safetensors": CUT, "config.json": EMPTIED},
    "weights": {"model.safetensors": FLIPPED},
}
"""Patterns of files, and how they are damaged."""


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
        assert case.verdict == (REFUSED if name in ("model", "weights") else WHOLE), case
        lines = [line for line in case.lines if Path(case.file).name in line]
        assert len(lines) == 1, case
