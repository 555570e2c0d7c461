"""Damage to the files that a run or a training leaves or reads; then the same command is given.

A file is cut to half of its bytes, emptied, or has a bit flipped. Right are the bytes of an
undisturbed run, or one line of error.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.attacks.frame import DONE, REFUSED, SAME, WRONG, End, Row, chosen, run_process
from nq.bundle import bundled_sample
from nq.errors import Error
from nq.model.registry import model_folder
from nq.storage import MARK, WORK

CUT, EMPTIED, FLIPPED = "cut", "emptied", "flipped"
DAMAGES = (CUT, EMPTIED, FLIPPED)
ANSWER = (
    "-m nq answer --data data.jsonl --model model --root runs --keep-scores --no-track "
    "--batch-size 1 --formats kaggle,nbest --json"
)
TRAIN = (
    "-m nq train --data data.jsonl --init model --output trained --no-track --json "
    "--max-seq-length 32 --max-query-length 8 --doc-stride 16 "
    "--epochs 3 --batch-size 2 --save-every 3"
)
RESULTS = (
    *("runs/*/predictions.json", "runs/*/skipped.jsonl", "runs/*/nbest.jsonl", "runs/*/kaggle.csv"),
    *("runs/*/scores/*.npz", "runs/windows-*/*.tfrecord", "trained/model.safetensors"),
)
"""What is byte-equal after an undisturbed and a disturbed run."""


@dataclass(frozen=True)
class Scenario:
    """A state of the disk, the command of Python given in it, and the verdicts that are right.

    ``prepare`` brings a folder after the command into the state; ``files`` are patterns of the
    files to damage.
    """

    command: str
    files: Sequence[str]
    expected: tuple[str, ...] = (SAME,)
    prepare: Callable[[Path], object] = str
    damages: Sequence[str] = DAMAGES


def interrupt(folder: Path) -> None:
    """Brings runs into the state of a kill before their results were written."""
    for scores in folder.glob("runs/*/scores"):
        remove_files(folder, f"runs/{scores.parent.name}")
        scores.rename(scores.with_name(WORK))


def remove_files(folder: Path, name: str = "trained") -> None:
    """Removes what a run or a training writes in the end: the files of its folder but its mark."""
    for path in (folder / name).iterdir():
        if path.is_file() and path.name != MARK:
            path.unlink()


SCENARIOS = {
    "finished": Scenario(ANSWER, ("runs/windows-*/*", "runs/*/*.*", "runs/*/scores/*")),
    "interrupted": Scenario(ANSWER, (f"runs/*/{WORK}/*",), prepare=interrupt),
    "training": Scenario(
        TRAIN,
        ("trained/unfinished/state/*", "trained/unfinished/windows/*"),
        prepare=remove_files,
    ),
    "teacher": Scenario(
        f"{TRAIN} --teacher model --teacher-profile baseline",
        ("trained/unfinished/teacher/*",),
        prepare=remove_files,
    ),
    "model": Scenario(ANSWER, ("model/*.*",), (SAME, REFUSED), damages=(CUT, EMPTIED)),
    "weights": Scenario(ANSWER, ("model/*.safetensors",), (REFUSED,)),
}
"""A flipped bit in the model folder makes another model, except in weights with a digest."""


def observe(scenario: Scenario, folder: Path, limit_s: float) -> tuple[End, dict[str, Any]]:
    """Runs the command of a scenario; returns its end, and the bytes of the result files."""
    end = run_process(scenario.command, folder, limit_s)
    result: dict[str, Any] = {
        str(path.relative_to(folder)): path.read_bytes()
        for pattern in RESULTS
        for path in folder.glob(pattern)
    }
    if end.code == 0:
        result["parity"] = json.loads(end.out).get("parity")
    return end, result


def damage(path: Path, kind: str, rng: random.Random) -> None:
    """Damages a file in place."""
    data = bytearray(path.read_bytes())
    if kind == FLIPPED:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data[: len(data) // 2] if kind == CUT else data if kind == FLIPPED else b"")


def files(scenario: Scenario, folder: Path) -> list[str]:
    """Returns the files to damage, relative to the folder; empty ones and locks are left out."""
    matching = {path for pattern in scenario.files for path in folder.glob(pattern)}
    whole = [p for p in matching if p.is_file() and p.stat().st_size and p.name[0] != "."]
    return sorted(str(path.relative_to(folder)) for path in whole)


def rows(name: str, args: argparse.Namespace, folder: Path, rng: random.Random) -> Iterator[Row]:
    """Damages each file of a scenario and gives the command again."""
    scenario, work, pristine = SCENARIOS[name], folder / "work", folder / "pristine"
    work.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "*.py")
    shutil.copytree(model_folder(args.model), work / "model", ignore=ignored)
    lines = bundled_sample().read_bytes().splitlines(keepends=True)[: args.limit]
    (work / "data.jsonl").write_bytes(b"".join([*lines, b"not JSON\n"]))
    if observe(scenario, work, args.limit_s)[0].code:
        raise Error(f"the command of scenario {name} fails: {scenario.command}")
    scenario.prepare(work)
    work.rename(pristine)
    shutil.copytree(pristine, work)
    undisturbed, expected = observe(scenario, work, args.limit_s)
    if undisturbed.code:
        raise Error(f"the command of scenario {name} fails when it is given again")
    cases = {
        f"{file} {kind}": (file, kind)
        for file in files(scenario, pristine)
        for kind in scenario.damages
    }
    for case in chosen(args, cases):
        file, kind = cases[case]
        for _ in range(args.flips if kind == FLIPPED else 1):
            shutil.rmtree(work)
            shutil.copytree(pristine, work)
            damage(work / file, kind, rng)
            end, result = observe(scenario, work, args.limit_s)
            verdict = end.verdict(undisturbed.lines)
            verdict = verdict if verdict != DONE else SAME if result == expected else WRONG
            text = " / ".join(line for line in end.lines if line not in undisturbed.lines)
            yield Row(kind, file, verdict, scenario.expected, text, *end.cost)
