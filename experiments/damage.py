"""Damages the files that a run leaves or reads, and checks what the next run makes of it.

    python -m experiments.damage
    python -m experiments.damage --model FOLDER --flips 20 --scenarios finished interrupted

Each file is cut to half of its bytes, emptied, and has a bit flipped, one at a time; then the same
command is given again. Right is the exit code 0 with the bytes of an undisturbed run, or 1 with one
line of error. The scenarios:

- ``finished``: a finished run with scores and windows;
- ``interrupted``: a run with its scores, killed before it wrote its results;
- ``training``: a training that was killed after its last checkpoint, with its windows;
- ``teacher``: the same with a teacher, and what the teacher has computed;
- ``model``: the model folder. A flipped bit makes another model there, so none is flipped;
- ``weights``: the weights in it, whose digest is known.

The table is printed in Markdown. The command exits with 1 if an outcome is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from experiments.text_tables import markdown
from nq.bundle import bundled_sample
from nq.commands import arguments, terminal
from nq.commands.main import console
from nq.commands.terminal import USAGE
from nq.errors import Error
from nq.inference.profile import BASELINE
from nq.model.registry import model_folder
from nq.storage import MARK

WHOLE, REFUSED = "same result", "refused"
TRACEBACK, WRONG, SEVERAL_LINES = "TRACEBACK", "WRONG RESULT", "NOT ONE LINE"
CUT, EMPTIED, FLIPPED = "cut", "emptied", "flipped"
DAMAGES = (CUT, EMPTIED, FLIPPED)
DATA, MODEL, RUNS, TRAINED = "data.jsonl", "model", "runs", "trained"
ANSWER = (
    *("answer", "--data", DATA, "--model", MODEL, "--root", RUNS, "--keep-scores", "--no-track"),
    *("--batch-size", "1", "--formats", "kaggle,nbest", "--json"),
)
TRAIN = (
    *("train", "--data", DATA, "--init", MODEL, "--output", TRAINED, "--no-track", "--json"),
    *("--max-seq-length", "32", "--max-query-length", "8", "--doc-stride", "16"),
    *("--epochs", "3", "--batch-size", "2", "--save-every", "3"),
)
RESULTS = (
    *(f"{RUNS}/*/{name}" for name in ("predictions.json", "skipped.jsonl", "nbest.jsonl")),
    *(f"{RUNS}/*/kaggle.csv", f"{RUNS}/*/scores/*.npz", f"{RUNS}/windows-*/*.tfrecord"),
    f"{TRAINED}/model.safetensors",
)
"""What is byte-equal after an undisturbed and a disturbed run."""


@dataclass(frozen=True)
class Scenario:
    """A state of the disk, and the command that is given in it.

    Args:
        command: arguments of ``nq``.
        files: patterns of the files to damage.
        prepare: brings a folder after the command into the state.
        damages: how files are damaged.
    """

    command: Sequence[str]
    files: Sequence[str]
    prepare: Callable[[Path], None]
    damages: Sequence[str] = DAMAGES


def _nothing(folder: Path) -> None:
    """Leaves a folder as it is after the command."""


def _interrupt(folder: Path) -> None:
    """Brings the runs in a folder into the state of a kill before the results were written."""
    for scores in folder.glob(f"{RUNS}/*/scores"):
        for path in scores.parent.iterdir():
            if path.is_file() and path.name != MARK:
                path.unlink()
        scores.rename(scores.with_name("unfinished"))


def _interrupt_training(folder: Path) -> None:
    """Removes what a training writes after its last step."""
    for path in (folder / TRAINED).iterdir():
        if path.is_file() and path.name != MARK:
            path.unlink()


SCENARIOS = {
    "finished": Scenario(
        ANSWER, (f"{RUNS}/windows-*/*", f"{RUNS}/*/*.*", f"{RUNS}/*/scores/*"), _nothing
    ),
    "interrupted": Scenario(ANSWER, (f"{RUNS}/*/unfinished/*",), _interrupt),
    "training": Scenario(
        TRAIN, (f"{TRAINED}/training/*", f"{TRAINED}/training/windows/*"), _interrupt_training
    ),
    "teacher": Scenario(
        (*TRAIN, "--teacher", MODEL, "--teacher-profile", BASELINE),
        (f"{TRAINED}/training/teacher/*",),
        _interrupt_training,
    ),
    "model": Scenario(ANSWER, (f"{MODEL}/*.*",), _nothing, (CUT, EMPTIED)),
    "weights": Scenario(ANSWER, (f"{MODEL}/*.safetensors",), _nothing),
}


@dataclass(frozen=True)
class Outcome:
    """What a command left, printed and returned.

    Args:
        code: its exit code.
        lines: of stderr.
        result: the bytes of each result file, and the comparison of the runs.
    """

    code: int
    lines: Sequence[str]
    result: Mapping[str, Any]

    def verdict(self, undisturbed: Outcome) -> str:
        """Returns what the outcome is beside that of an undisturbed run."""
        new = [line for line in self.lines if line not in undisturbed.lines]
        if self.code not in (0, terminal.FAILED) or any("Traceback" in line for line in new):
            return TRACEBACK
        if self.code == 0:
            return WHOLE if self.result == undisturbed.result else WRONG
        errors = [line for line in new if not line.startswith("nq: warning: ")]
        return REFUSED if len(errors) == 1 else SEVERAL_LINES


@dataclass(frozen=True)
class Case:
    """A damaged file and its outcome; ``lines`` are those of stderr."""

    scenario: str
    file: str
    damage: str
    verdict: str
    lines: Sequence[str]


Runner = Callable[[Sequence[str], Path], tuple[int, str, str]]
"""Runs ``nq`` with arguments in a folder; returns its exit code, stdout and stderr."""


def run_process(argv: Sequence[str], folder: Path) -> tuple[int, str, str]:
    """Runs ``nq`` in a process of its own."""
    command = [sys.executable, "-m", "nq", *argv]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def run_here(argv: Sequence[str], folder: Path) -> tuple[int, str, str]:
    """Runs ``nq`` in this process, which is faster; an exception counts as a traceback."""
    out, err, root = io.StringIO(), io.StringIO(), logging.getLogger()
    handlers, root.handlers[:] = list(root.handlers), []  # those that exist write elsewhere
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = console(list(argv))
        except Exception as error:
            return USAGE, "", f"Traceback: {error!r}"
        finally:
            root.handlers[:] = handlers
    return code, out.getvalue(), err.getvalue()


def observe(scenario: Scenario, folder: Path, runner: Runner) -> Outcome:
    """Runs the command of a scenario in a folder and returns its outcome."""
    code, out, err = runner(scenario.command, folder)
    result: dict[str, Any] = {
        str(path.relative_to(folder)): path.read_bytes()
        for pattern in RESULTS
        for path in sorted(folder.glob(pattern))
    }
    if code == 0:
        result["parity"] = json.loads(out).get("parity")
    return Outcome(code, err.splitlines(), result)


def damage(path: Path, kind: str, draw: random.Random) -> None:
    """Damages a file in place."""
    data = bytearray(path.read_bytes())
    if kind == FLIPPED:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data[: len(data) // 2] if kind == CUT else data if kind == FLIPPED else b"")


def cases(
    name: str,
    start: Path,
    folder: Path,
    runner: Runner,
    damages: Callable[[Path], Sequence[str]],
    draw: random.Random,
) -> Iterator[Case]:
    """Yields the cases of one scenario.

    Args:
        name: of the scenario.
        start: a folder with data and model.
        folder: to work in; it is created for each case.
        runner: runs the command.
        damages: returns how to damage a file, one after the other.
        draw: chooses the bits.

    Raises:
        Error: the undisturbed command fails.
    """
    scenario = SCENARIOS[name]
    pristine = folder.with_name(f"{folder.name}.pristine")
    shutil.copytree(start, folder)
    if observe(scenario, folder, runner).code:
        raise Error(f"the command of scenario {name} fails: {' '.join(scenario.command)}")
    scenario.prepare(folder)
    folder.rename(pristine)

    def again(path: Path | None, kind: str) -> Outcome:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(pristine, folder)
        if path is not None:
            damage(folder / path, kind, draw)
        return observe(scenario, folder, runner)

    undisturbed = again(None, "")
    if undisturbed.code:
        raise Error(f"the command of scenario {name} fails when it is given again")
    for path in files(scenario, pristine):
        for kind in damages(path):
            outcome = again(path, kind)
            yield Case(name, str(path), kind, outcome.verdict(undisturbed), outcome.lines)


def _every(kinds: Sequence[str], path: Path) -> Sequence[str]:
    """Returns these kinds of damage for every file."""
    return kinds


def files(scenario: Scenario, folder: Path) -> list[Path]:
    """Returns the files to damage, relative to the folder; empty ones and locks are left out."""
    found = {path for pattern in scenario.files for path in folder.glob(pattern)}
    whole = [p for p in found if p.is_file() and p.stat().st_size and not p.name.startswith(".")]
    return sorted(path.relative_to(folder) for path in whole)


def make_start(folder: Path, model: Path, limit: int) -> None:
    """Makes a folder with a copy of the model, and data with one bad record."""
    folder.mkdir()
    shutil.copytree(model, folder / MODEL, ignore=shutil.ignore_patterns("__pycache__", "*.py"))
    lines = bundled_sample().read_bytes().splitlines(keepends=True)[:limit]
    (folder / DATA).write_bytes(b"".join([*lines, b"not JSON\n"]))


def table(found: Sequence[Case]) -> str:
    """Returns the cases as a Markdown table of files and damages."""
    cells: dict[tuple[str, str], dict[str, Counter[str]]] = {}
    for case in found:
        row = cells.setdefault((case.scenario, case.file), {kind: Counter() for kind in DAMAGES})
        row[case.damage][case.verdict] += 1
    rows = (
        (*place, *(", ".join(_count(*item) for item in row[kind].items()) for kind in DAMAGES))
        for place, row in cells.items()
    )
    return markdown(("scenario", "file", *DAMAGES), *rows)


def _count(verdict: str, n: int) -> str:
    return verdict if n == 1 else f"{n} x {verdict}"


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.damage",
        description="Damages each file that a run leaves or reads, gives the command again, and "
        "checks that it ends with the same bytes or with one line of error.",
    )
    arguments.add_model(parser)
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument(
        "--limit", type=arguments.positive, default=3, metavar="N", help="questions"
    )
    parser.add_argument("--flips", type=arguments.positive, default=1, metavar="N", help="per file")
    parser.add_argument("--seed", type=arguments.count_from_0, default=0, metavar="N")
    parser.add_argument("--here", action="store_true", help="all runs in one process, faster")
    arguments.add_common(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    found: list[Case] = []
    runner, draw = run_here if args.here else run_process, random.Random(args.seed)
    times = {FLIPPED: args.flips}
    with (
        tempfile.TemporaryDirectory() as folder,
        terminal.ProgressBar("damage", "cases") as bar,
    ):
        start = Path(folder) / "start"
        make_start(start, model_folder(args.model), args.limit)
        for name in args.scenarios:
            kinds = [k for k in SCENARIOS[name].damages for _ in range(times.get(k, 1))]
            work, every = Path(folder) / name, partial(_every, kinds)
            for case in cases(name, start, work, runner, every, draw):
                found.append(case)
                bar(1, len(found))
    if args.json:
        terminal.print_json({"cases": [asdict(case) for case in found]})
    else:
        print(table(found), end="")
    return terminal.FAILED if any(c.verdict not in (WHOLE, REFUSED) for c in found) else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return terminal.run(run, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
