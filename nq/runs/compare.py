"""Measures profiles against each other, every run of ``nq answer`` in a process of its own.

Round 0 is one run of baseline, which prepares the windows and does not count. In each further round
all profiles run in turn, so that a change of the machine's speed affects all. A run beside which
other programs took much of the processor is repeated once in its round; if they did again, the
round does not count for the verdict. What is measured is kept at once; an equal comparison runs
what is missing, and busy rounds again.
"""

import contextlib
import hashlib
import json
import logging
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import product
from operator import truediv
from pathlib import Path
from statistics import median
from typing import Any

from nq import child, storage, tracking
from nq.config import TrackingConfig
from nq.errors import DamagedError, Error, check_argument, is_count
from nq.evaluation.evaluate import example_labels
from nq.evaluation.gate import Counts, question_counts, relative_loss
from nq.evaluation.labels import Label, read_predictions, same_answers
from nq.formats import input_files
from nq.inference.profile import BASELINE, THESIS, Profile, profiles
from nq.memo import REQUEST, Memo
from nq.model.folder import weights_digest
from nq.model.spec import find_model
from nq.progress import reporting
from nq.records import ExampleId
from nq.report.comparison import PAGE, Comparison, ComparisonRow, advice, cells, row
from nq.report.page import comparison_page
from nq.report.questions import Question, entries
from nq.runs.finished import FinishedRun
from nq.runs.measure import BUSY, OnPhase, machine
from nq.runs.profile_choice import CANDIDATES, COMPARED, choices, default_choice
from nq.runs.record import DIGITS, logged_model, measured_run, params, quality
from nq.runs.result import PREDICTIONS
from nq.runs.scoring import RunProgress
from nq.text import counted

log = logging.getLogger(__name__)

MAX_CHANGES = 100
DEVICE = "GPU" if Path("/dev/nvidiactl").exists() else "CPU"
ALL = tuple(map(str, profiles(THESIS)))
DEFAULT = default_choice(DEVICE, mixed=False), default_choice(DEVICE)
SETS = {"default": DEFAULT, "thesis": ALL, "all": (*ALL, *CANDIDATES[DEVICE])}

Answers = Mapping[str, Mapping[ExampleId, Label]]  # by profile


def compare(
    data: str | Path | Iterable[str | Path],
    profiles: Profile | str | Iterable[Profile | str] = "default",
    *,
    model: str | Path | None = None,
    rounds: int = 3,
    limit: int | None = None,
    output: str | Path | None = None,
    options: Sequence[str] = (),
    track: TrackingConfig | None = None,
    progress: RunProgress | None = None,
    on_phase: OnPhase | None = None,
) -> Comparison:
    """Measures profiles against each other on the same questions, as ``nq compare`` does.

    Args:
        profiles: such as ``["mixed", "mixed+xla"]``; ``"default"``, ``"thesis"`` and ``"all"``
            stand for several. ``baseline`` and what ``"auto"`` would take are always measured.
        rounds: how many count for the speed.
        limit: answer the first so many questions.
        output: folder of the comparison, by default one in ``runs`` named by data, model, options
            and processor; one that was interrupted is continued.
        options: of ``nq answer`` for all runs, such as ``["--batch-size", "8"]``.
        track: where MLflow records a run for each profile; by default nowhere.
        progress, on_phase: receive completed runs, and what is measured; by default a bar does.

    Returns:
        A list with a row for each profile, the fastest first; those that failed come last, with the
        reason. Its attribute ``folder`` is that of the comparison.

    Raises:
        Error: the folder has another comparison or files of others, or baseline failed.
        ValueError, OSError: a profile is unknown, or a file cannot be read or written.
    """
    check_argument(is_count(rounds), "rounds", rounds, "a whole number from 1 on")
    wanted = [profiles] if isinstance(profiles, str | Profile) else list(profiles)
    if limit is not None:
        check_argument(is_count(limit), "limit", limit, "a whole number from 1 on, or None")
        options = ["--limit", str(limit), *options]
    started = time.time()
    _names(wanted)
    with (
        reporting(progress, on_phase, "compare", "runs") as (report, phase),
        open_measured("compare", data, model, options, output) as (files, folder, memo),
    ):
        own = ["--root", str(folder), *([] if model is None else ["--model", str(model)])]
        file, recorded = folder / COMPARED, _reopened(folder / COMPARED, memo)

        def measured(number: int, name: str) -> dict[str, Any]:
            label, part = f"{name}, round {number} of {rounds}", f"{number:03d}-{name}.json"
            phase(label)
            repeat = partial(phase, f"{label}: repeating, the machine was busy")
            compute = partial(_measured, number, name, ["--data", *files, *options, *own], repeat)
            run = memo.computed(part, compute)
            if not (folder / run["name"] / PREDICTIONS).is_file():  # nq clean --runs removed it
                memo.remove(part)
                run = memo.computed(part, compute)
            return run

        first = measured(0, BASELINE)
        job = FinishedRun(folder / first["name"], files, check=False).job
        key, *chosen, _ = choices(job, folder.parent, first["device"])
        names = _names([*wanted, *chosen])
        steps = list(product(range(1, rounds + 1), names))
        if left := sum(not (memo.folder / f"{n:03d}-{name}.json").exists() for n, name in steps):
            minutes = left * first["wall_s"] / 60
            log.info("%s, which take about %.1f minutes", counted(left, "run"), minutes)
        report(1, len(steps) + 1)
        runs, errors = [first], dict[str, str]()
        for number, name in steps:
            try:
                runs += [] if name in errors else [measured(number, name)]
            except Error as error:
                if name == BASELINE:
                    raise
                errors[name] = str(error)
            report(1, len(steps) + 1)
        runs = [run for run in runs if run["profile"] not in errors]
        folders = {run["profile"]: folder / run["name"] for run in runs}
        answers = {name: read_predictions(one / PREDICTIONS) for name, one in folders.items()}
        counts = _gold_counts(folders[BASELINE], files, answers)
        rows = [_row(name, runs, answers, counts) for name in answers]
        rows.sort(key=lambda row: row.windows_per_s or 0.0, reverse=True)
        rows += [ComparisonRow(name, error=text) for name, text in errors.items()]
        take = _write_page(rows, folder, files, answers, folders[BASELINE])
        final = {"machine": machine(), "key": key, "profiles": names, "runs": runs, "take": take}
        storage.write_json(file, {**final, "recorded": recorded})
        new = {f"{run['profile']}, {run['wall_s']} s" for run in runs} - {*recorded}
        if track and new and _record(track, rows, runs, folder, files, started):
            storage.write_json(file, {**final, "recorded": [*recorded, *sorted(new)]})
    return Comparison(rows, folder)


def _write_page(
    rows: Sequence[ComparisonRow],
    folder: Path,
    files: list[str],
    answers: Answers,
    baseline: Path,
) -> str:
    """Writes the page of a comparison and returns the profile to take, empty if none."""
    take, reason = advice(rows)
    title = f"{counted(len(rows), 'profile')} on {Path(input_files.shown(files[0])).name}"
    scope = f"{counted(len(answers[BASELINE]), 'question')}; {machine()}."
    changes = _changes(baseline, files, answers)
    with storage.atomic_write(folder / PAGE) as page:
        page.write(comparison_page(rows, title, (reason, scope), changes))
    return take


@contextlib.contextmanager
def open_measured(
    name: str,
    data: str | Path | Iterable[str | Path],
    model: str | Path | None,
    options: Sequence[str],
    output: str | Path | None,
    **also: str,
) -> Iterator[tuple[list[str], Path, Memo]]:
    """Holds the folder of a comparison; yields input files, folder and memo of the measurements.

    They depend on all arguments, ``also`` included. Without ``output`` these name the folder, after
    the ``name``; ``Error`` if the folder has measurements of others.
    """
    spec = find_model(model)
    with contextlib.ExitStack() as stack:
        paths = input_files.path_list("data", data)
        files = stack.enter_context(input_files.input_files(paths))
        described = {
            "data": list(map(input_files.sha256, files)),
            "models": [
                {key: value for key, value in spec.to_dict().items() if "model" not in key},
                *(weights_digest(one.folder) for one in spec.models),
            ],
            "options": list(options),
            "processors": machine(),
            **also,
        }
        request = json.loads(json.dumps(described))
        digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:10]
        folder = Path("runs", f"{name}-{digest}") if output is None else Path(output)
        stack.enter_context(storage.hold(folder, storage.COMPARISON, files))
        memo, stored = Memo(folder / storage.MEASURED), request
        with contextlib.suppress(FileNotFoundError, DamagedError):
            stored = memo.values(REQUEST)
        if other := [key for key in {**request, **stored} if request.get(key) != stored.get(key)]:
            what = " and ".join(other)
            raise Error(f"{folder} has measurements of other {what}: give another --output")
        yield files, folder, Memo.open(memo.folder, request)


def _reopened(file: Path, memo: Memo) -> list[str]:
    """Removes the busy rounds of a comparison that has ended; returns the runs recorded of it."""
    earlier = dict[str, Any]()
    with contextlib.suppress(FileNotFoundError, DamagedError):
        earlier = storage.read_json(file)
    for number in {run["round"] for run in earlier.get("runs", ()) if run.get("busy")} - {0}:
        for path in memo.folder.glob(f"{number:03d}-*"):
            memo.remove(path.name)
    return list(earlier.get("recorded", ()))


def _names(wanted: Iterable[Profile | str]) -> list[str]:
    """Returns the profiles to measure: baseline and those wanted."""
    several = [BASELINE, *(name for one in wanted for name in SETS.get(str(one), (one,)))]
    return list(dict.fromkeys(str(Profile.of(name)) for name in several))


def _record(
    track: TrackingConfig,
    rows: Sequence[ComparisonRow],
    runs: Sequence[Mapping[str, Any]],
    folder: Path,
    files: Sequence[str],
    started: float,
) -> bool:
    """Records one run and one model for each profile; all runs have the same tag.

    What each round has measured is a step of a metric of its own, so that all others have one
    value, by which MLflow compares the models. The run of the profile to take, or of the fastest if
    there is none, has the table and the page. Returns whether all are recorded; the first failure,
    which is logged, ends the recording.
    """
    (take, reason), now = advice(rows), time.time()
    best = take or rows[0].profile
    tag = f"{folder.absolute()} {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(started))}"
    about = {"comparison": tag, "parity.against": BASELINE, tracking.MACHINE: machine()}
    for one in (one for one in rows if not one.error):
        rounds = [run for run in runs if run["profile"] == one.profile and run["round"]]
        period = now - sum(run["wall_s"] for run in rounds), now
        tags = {**about, tracking.SPEED_COMPARABLE: "yes" if one.ratios else f"no: {BUSY}"}
        with measured_run(track, one.profile, "nq.compare", tags, period) as recorded:
            last = FinishedRun(folder / rounds[0]["name"], files, check=False)
            job, precision = last.job, last.metrics["precision"]
            recorded.params({**params(job, precision), "rounds": len(rounds)})
            digests = [*map(input_files.sha256, files)]
            recorded.dataset([*map(input_files.shown, files)], digests)
            recorded.model(**logged_model(job, precision))
            figures = {  # MLflow's pages begin with the first
                **quality(last.metrics["metrics"]),
                tracking.PREDICT_S: one.predict_s,
                tracking.WINDOWS_PER_S: one.windows_per_s,
                tracking.CHANGED: one.changed,
                tracking.PEAK_MB: one.memory_mb,
                "first_start_s": one.first_start_s,
            }
            recorded.metrics({k: round(x, DIGITS) for k, x in figures.items() if x is not None})
            for run, name in product(rounds, ("predict_s", "windows_per_s")):
                recorded.metrics({f"rounds.{name}": round(run[name], DIGITS)}, run["round"])
            other = f"This is one of {counted(len(rows), 'profile')} compared. {reason}"
            recorded.tags({tracking.DESCRIPTION: reason if one.profile == best else other})
            if one.profile == best:
                heads, body = cells(rows)
                columns = dict(zip(heads, zip(*body, strict=True), strict=True))
                recorded.table(columns, "comparison.json")
                recorded.artifacts([folder / PAGE, folder / COMPARED])
        if not recorded.available:
            return False
    return True


def answer_in_process(profile: str, options: Sequence[str]) -> dict[str, Any]:
    """Runs ``nq answer`` in a process of its own, which ends with this one.

    Returns its JSON result, with the seconds of the whole process as ``wall_s``. An ``Error`` has
    the error line of a run that failed.
    """
    arguments = [*options, "--no-track", "--json", "--profile", profile]
    command, started = child.bound("nq.answer", *arguments), time.perf_counter()
    process = subprocess.run(**command, capture_output=True, text=True, check=False)
    if process.returncode:
        lines = process.stderr.strip().splitlines() or [f"exit code {process.returncode}"]
        (*_, error) = [line for line in lines if line.startswith("nq: error: ")] or lines
        raise Error(error.removeprefix("nq: error: "))
    result: dict[str, Any] = json.loads(process.stdout)
    if result["parts"] > 1:  # it continued a run that was killed
        return answer_in_process(profile, options)
    return {**result, "wall_s": time.perf_counter() - started}


def _measured(
    number: int, profile: str, options: Sequence[str], repeating: Callable[[], object]
) -> dict[str, Any]:
    """Returns what is kept of a run of a round; ``repeating`` is called before a repetition."""
    result = answer_in_process(profile, options)
    if number and BUSY in result["speed_comparable"]:
        repeating()
        result = answer_in_process(profile, options)
    name, busy = Path(result["output"]).name, int(BUSY in result["speed_comparable"])
    own, around_s = row(result, name=name, busy=busy), result["wall_s"] - result["time"]["total_s"]
    return asdict(own) | {
        "round": number,
        "first_start_s": (own.first_start_s or 0) + around_s,
        "device": result["device"],
        "wall_s": result["wall_s"],
    }


def _gold_counts(folder: Path, files: list[str], answers: Answers) -> dict[str, list[Counts]]:
    """Returns of each profile what the questions with gold add to the sums of micro-F1."""
    sources = FinishedRun(folder, files, check=False).sources()
    gold = {one.example_id: example_labels(one) for _, one in sources if one.annotations}
    return {name: question_counts(gold, labels) for name, labels in answers.items()}


def _row(
    name: str,
    runs: Sequence[Mapping[str, Any]],
    answers: Answers,
    counts: Mapping[str, Sequence[Counts]],
) -> ComparisonRow:
    """Returns the row of a profile, with the figures of the quiet rounds, or of all if none was."""
    rounds = {run["round"] for run in runs} - {0}
    quiet = rounds - {run["round"] for run in runs if run["busy"]}

    def column(field: str, profile: str = name) -> list[float]:
        own = (run for run in runs if run["profile"] == profile)
        return [run[field] for run in own if run["round"] in (quiet or rounds)]

    loss = None
    if len(counts[BASELINE]) > 1 and any(correct for correct, *_ in counts[BASELINE]):
        gate = relative_loss(counts[name], counts[BASELINE])
        loss = gate.loss, gate.low
    speeds, baseline = column("windows_per_s"), answers[BASELINE]
    ratios = tuple(map(truediv, speeds, column("windows_per_s", BASELINE)))
    own = [run for run in runs if run["profile"] == name and run["round"]]
    medians = {field: median(column(field)) for field in ("predict_s", "memory_mb")}
    return ComparisonRow(
        name,
        *(median(speeds), min(speeds), max(speeds)),
        median(ratios),
        **medians | {field: own[0][field] for field in ("first_start_s", "micro_f1")},
        changed=sum(not same_answers(label, baseline[key]) for key, label in answers[name].items()),
        loss=loss,
        busy=sum(run["busy"] for run in own),
        ratios=ratios if quiet else (),
    )


def _changes(folder: Path, files: list[str], answers: Answers) -> list[dict[str, Any]]:
    """Returns the first questions with several answers, from the folder of a run on the files."""
    changes = list[dict[str, Any]]()
    for source, example in FinishedRun(folder, files, check=False).sources():
        labels = {name: predictions[example.example_id] for name, predictions in answers.items()}
        if all(same_answers(label, labels[BASELINE]) for label in labels.values()):
            continue
        given = {}
        for name, label in labels.items():
            row, details = entries(Question(example, source, label), [], 0)
            given[name] = details["given"] | {"outcome": row["o"][0]}
        changes.append({"question": example.question, "answers": given})
    return changes[:MAX_CHANGES]
