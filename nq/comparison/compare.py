"""Measures rows of settings against each other, every run of ``nq answer`` in a process of its own.

A row is a profile with a batch size and a window length. In round 0 one row of each window length
runs, which prepares the windows and does not count. In each further round all rows run in turn, so
that a change of the machine's speed affects all. A run beside which other programs took much of the
processor is repeated once in its round; if they did again, the round does not count for the
verdict. What is measured is kept at once; an equal comparison runs what is missing, and busy rounds
again.
"""

import contextlib
import json
import logging
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from operator import truediv
from pathlib import Path
from statistics import median
from typing import Any

from nq import child, storage, tracking
from nq.comparison.page import PAGE, Comparison, advice, comparison_page
from nq.config import TrackingConfig
from nq.errors import DamagedError, Error, check_argument, is_count
from nq.evaluation.answers import PREDICTIONS
from nq.evaluation.evaluate import example_labels
from nq.evaluation.gate import question_counts, relative_loss
from nq.evaluation.labels import Label, read_predictions, same_answers
from nq.formats import input_files
from nq.formats.questions import PageFolder
from nq.inference.profile import BASELINE, THESIS, Profile, profiles
from nq.memo import REQUEST, Memo
from nq.model.folder import weights_digest
from nq.model.spec import find_model
from nq.progress import reporting
from nq.questions import Questions, page_folder
from nq.records import ExampleId
from nq.report.comparison import ComparisonRow, cells, row
from nq.report.questions import Question, entries
from nq.runs.folder import FinishedRun
from nq.runs.measure import BUSY, OnPhase, machine
from nq.runs.profile_choice import CANDIDATES, COMPARED, choices, default_choice
from nq.runs.record import DIGITS, logged_model, measured_run, params, quality
from nq.runs.scoring import RunProgress
from nq.text import counted

log = logging.getLogger(__name__)

MAX_CHANGES = 100
DEVICE = "GPU" if Path("/dev/nvidiactl").exists() else "CPU"
ALL = tuple(map(str, profiles(THESIS)))
DEFAULT = default_choice(DEVICE, mixed=False), default_choice(DEVICE)
SETS = {"default": DEFAULT, "thesis": ALL, "all": (*ALL, *CANDIDATES[DEVICE])}

Answers = Mapping[str, Mapping[ExampleId, Label]]  # by label of the row
Run = Mapping[str, Any]
"""What is kept of a run: a ``ComparisonRow`` with the label of its row, its round and device."""


def compare(
    data: str | Path | Iterable[str | Path],
    profiles: Profile | str | Iterable[Profile | str] = "default",
    *,
    model: str | Path | None = None,
    pages: PageFolder | str | Path | None = None,
    batch_sizes: Sequence[int] = (),
    max_seq_lengths: Sequence[int] = (),
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
        pages: the folder of the pages that questions name.
        batch_sizes: windows in a batch; each profile is measured with each of them.
        max_seq_lengths: pieces in a window; likewise.
        rounds: how many count for the speed.
        limit: answer the first so many questions.
        output: folder of the comparison, by default one in ``runs`` named by data, model, options
            and processor; one that was interrupted is continued.
        options: of ``nq answer`` for all runs, such as ``["--threads", "8"]``.
        track: where MLflow records a run for each row; by default nowhere.
        progress, on_phase: receive completed runs, and what is measured; by default a bar does.

    Returns:
        A list with a row for each profile and size, the fastest first; those that failed come last,
        with the reason. Its attribute ``folder`` is that of the comparison.

    Raises:
        Error: the folder has another comparison or files of others, or baseline failed.
        ValueError, OSError: a profile is unknown, or a file cannot be read or written.
    """
    check_argument(is_count(rounds), "rounds", rounds, "a whole number from 1 on")
    if limit is not None:
        check_argument(is_count(limit), "limit", limit, "a whole number from 1 on, or None")
        options = ["--limit", str(limit), *options]
    wanted = [profiles] if isinstance(profiles, str | Profile) else list(profiles)
    several = [name for one in wanted for name in SETS.get(str(one), (one,))]
    names = [str(Profile.of(name)) for name in several]
    sizes = product(names, batch_sizes or (None,), max_seq_lengths or (None,))
    asked = [ComparisonRow(name, batch_size=n, max_seq_length=k) for name, n, k in sizes]
    base, started = ComparisonRow(BASELINE), time.time()
    with (
        reporting(progress, on_phase, "compare", "runs") as (report, phase),
        _opened(data, model, page_folder(pages), options, output) as (files, own, memo),
    ):
        folder = memo.folder.parent
        recorded = _reopened(memo)

        def measured(number: int, one: ComparisonRow) -> Run:
            label = f"{one.label}, round {number} of {rounds}"
            phase(label)
            repeating = partial(phase, f"{label}: repeating, the machine was busy")
            return _measured(number, one, own, memo, repeating)

        first = measured(0, base)
        run = FinishedRun(folder / first["name"], files, check=False)
        key, *chosen, _ = choices(run.job, run.questions, folder.parent, first["device"])
        rows = list(dict.fromkeys([base, *asked, *map(ComparisonRow, chosen)]))
        preparing = {one.max_seq_length: one for one in reversed(rows)}.values()
        steps = [*((0, one) for one in preparing), *product(range(1, rounds + 1), rows)]
        if left := sum(not (memo.folder / _part(*step)).exists() for step in steps):
            minutes = left * first["wall_s"] / 60
            log.info("%s, which take about %.1f minutes", counted(left, "run"), minutes)
        runs, errors = _run(steps, measured, report)
        folders = {run["label"]: folder / run["name"] for run in runs}
        answers = {label: read_predictions(one / PREDICTIONS) for label, one in folders.items()}
        base_run = FinishedRun(folders[BASELINE], files, check=False)
        measured_rows = _rows([one for one in rows if one not in errors], runs, answers, base_run)
        failed = [replace(one, error=text) for one, text in errors.items()]
        result = Comparison([*measured_rows, *failed], folder)
        take, reason = advice(result)
        _write_page(result, reason, files, _changes(base_run, answers), len(answers[BASELINE]))
        labels = [one.label for one in result]
        final = {"machine": machine(), "key": key, "profiles": labels, "runs": runs, "take": take}
        storage.write_json(folder / COMPARED, {**final, "recorded": recorded})
        new = {f"{run['label']}, {run['wall_s']} s" for run in runs} - {*recorded}
        if track and new and _record(track, result, runs, files, started):
            storage.write_json(folder / COMPARED, {**final, "recorded": [*recorded, *sorted(new)]})
    return result


def _run(
    steps: Sequence[tuple[int, ComparisonRow]],
    measured: Callable[[int, ComparisonRow], Run],
    report: RunProgress,
) -> tuple[list[Run], dict[ComparisonRow, str]]:
    """Returns the runs of the rows that never failed, and the errors of the others."""
    runs, errors = list[Run](), dict[ComparisonRow, str]()
    for number, one in steps:
        try:
            runs += [] if one in errors else [measured(number, one)]
        except Error as error:
            if one.label == BASELINE:
                raise
            errors[one] = str(error)
        report(1, len(steps))
    failed = {one.label for one in errors}
    return [run for run in runs if run["label"] not in failed], errors


def _part(number: int, one: ComparisonRow) -> str:
    """Returns the name of what the memo keeps of a row in a round."""
    sizes = "-".join(str(size or "") for size in (one.profile, one.batch_size, one.max_seq_length))
    return f"{number:03d}-{sizes.rstrip('-')}.json"


def _write_page(
    rows: Comparison, reason: str, files: list[str], changes: Sequence[Any], n_questions: int
) -> None:
    profiles = counted(len({one.profile for one in rows}), "profile")
    title = f"{profiles} on {Path(input_files.shown(files[0])).name}"
    scope = f"{counted(n_questions, 'question')}; {machine()}."
    with storage.atomic_write(rows.folder / PAGE) as page:
        page.write(comparison_page(rows, title, (reason, scope), changes))


@contextlib.contextmanager
def _opened(
    data: str | Path | Iterable[str | Path],
    model: str | Path | None,
    pages: PageFolder | None,
    options: Sequence[str],
    output: str | Path | None,
) -> Iterator[tuple[list[str], list[str], Memo]]:
    """Holds the folder of a comparison; yields input files, options of all runs and the memo.

    What is measured depends on all arguments; without ``output`` these name the folder. ``Error``
    if the folder has measurements of others.
    """
    spec = find_model(model)
    with contextlib.ExitStack() as stack:
        paths = input_files.path_list("data", data)
        questions = stack.enter_context(Questions.open(paths, pages))
        files, read = [*questions.files], questions.key
        described = {
            "data": [file["sha256"] for file in read["inputs"]],
            "pages": read.get("pages"),
            "models": [
                {key: value for key, value in spec.to_dict().items() if "model" not in key},
                *(weights_digest(one.folder) for one in spec.models),
            ],
            "options": list(options),
            "processors": machine(),
        }
        request = json.loads(json.dumps(described))
        named = Path("runs", f"compare-{storage.digest_json(request)[:10]}")
        folder = named if output is None else Path(output)
        stack.enter_context(storage.hold(folder, storage.COMPARISON, files))
        memo, stored = Memo(folder / storage.MEASURED), request
        with contextlib.suppress(FileNotFoundError, DamagedError):
            stored = memo.values(REQUEST)
        if other := [key for key in {**request, **stored} if request.get(key) != stored.get(key)]:
            what = " and ".join(other)
            raise Error(f"{folder} has measurements of other {what}: give another --output")
        own = ["--data", *files, *options, "--root", str(folder)]
        own += [] if model is None else ["--model", str(model)]
        own += [] if pages is None else ["--pages", pages.folder, "--page-column", pages.column]
        yield files, own, Memo.open(memo.folder, request)


def _reopened(memo: Memo) -> list[str]:
    """Removes the busy rounds of a comparison that has ended; returns the runs recorded of it."""
    earlier = dict[str, Any]()
    with contextlib.suppress(FileNotFoundError, DamagedError):
        earlier = storage.read_json(memo.folder.parent / COMPARED)
    for number in {run["round"] for run in earlier.get("runs", ()) if run.get("busy")} - {0}:
        for path in memo.folder.glob(f"{number:03d}-*"):
            memo.remove(path.name)
    return list(earlier.get("recorded", ()))


def _record(
    track: TrackingConfig,
    rows: Comparison,
    runs: Sequence[Run],
    files: Sequence[str],
    started: float,
) -> bool:
    """Records one run and one model for each row; all runs have the same tag.

    What each round has measured is a step of a metric of its own, so that all others have one
    value, by which MLflow compares the models. The run of the row to take, or of the fastest if
    there is none, has the table and the page. Returns whether all are recorded; the first failure,
    which is logged, ends the recording.
    """
    (take, reason), now = advice(rows), time.time()
    best = take or rows[0].label
    tag = f"{rows.folder.absolute()} {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(started))}"
    about = {"comparison": tag, "parity.against": BASELINE, tracking.MACHINE: machine()}
    for one in (one for one in rows if not one.error):
        rounds = [run for run in runs if run["label"] == one.label and run["round"]]
        period = now - sum(run["wall_s"] for run in rounds), now
        tags = {**about, tracking.SPEED_COMPARABLE: "yes" if one.ratios else f"no: {BUSY}"}
        with measured_run(track, one.label, "nq.compare", tags, period) as recorded:
            last = FinishedRun(rows.folder / rounds[0]["name"], files, check=False)
            job, precision = last.job, last.metrics["precision"]
            recorded.params({**params(job, precision), "rounds": len(rounds)})
            digests = [*map(storage.sha256, files)]
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
            other = f"This is one of {len(rows)} compared. {reason}"
            recorded.tags({tracking.DESCRIPTION: reason if one.label == best else other})
            if one.label == best:
                heads, body = cells(rows)
                columns = dict(zip(heads, zip(*body, strict=True), strict=True))
                recorded.table(columns, "comparison.json")
                recorded.artifacts([rows.folder / PAGE, rows.folder / COMPARED])
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
    if result["resumed_windows"]:  # it continued a run that was killed
        return answer_in_process(profile, options)
    return {**result, "wall_s": time.perf_counter() - started}


def _measured(
    number: int,
    one: ComparisonRow,
    options: Sequence[str],
    memo: Memo,
    repeating: Callable[[], object],
) -> Run:
    """Returns what is kept of a run of a round; it is measured if it is not kept.

    ``repeating`` is called before a repetition.
    """
    if one.batch_size is not None:
        options = [*options, "--batch-size", str(one.batch_size)]
    if one.max_seq_length is not None:
        options = [*options, "--set", f"max_seq_length={one.max_seq_length}"]

    def compute() -> Run:
        result = answer_in_process(one.profile, options)
        if number and BUSY in result["speed_comparable"]:
            repeating()
            result = answer_in_process(one.profile, options)
        name, busy = Path(result["output"]).name, int(BUSY in result["speed_comparable"])
        own = row(result, name=name, busy=busy)
        around_s = result["wall_s"] - result["time"]["total_s"]
        return asdict(own) | {
            "label": one.label,
            "round": number,
            "first_start_s": (own.first_start_s or 0) + around_s,
            "device": result["device"],
            "wall_s": result["wall_s"],
        }

    part = _part(number, one)
    run = memo.computed(part, compute)
    if not (memo.folder.parent / run["name"] / PREDICTIONS).is_file():  # nq clean --runs removed it
        memo.remove(part)
        run = memo.computed(part, compute)
    return run


def _rows(
    asked: Sequence[ComparisonRow], runs: Sequence[Run], answers: Answers, baseline: FinishedRun
) -> list[ComparisonRow]:
    """Returns the rows with their figures, the fastest first.

    The figures are of the quiet rounds, or of all if none was. Where rows have windows of several
    lengths, the speed in questions tells the fastest.
    """
    gold = {x.example_id: example_labels(x) for _, x in baseline.sources() if x.annotations}
    counts = {label: question_counts(gold, labels) for label, labels in answers.items()}
    has_loss = len(gold) > 1 and any(correct for correct, *_ in counts[BASELINE])
    rounds = {run["round"] for run in runs} - {0}
    quiet = rounds - {run["round"] for run in runs if run["busy"]}

    def figures(one: ComparisonRow) -> ComparisonRow:
        label = one.label
        own = [run for run in runs if run["label"] == label and run["round"]]
        speeds = column("windows_per_s", label)
        ratios = tuple(map(truediv, column("predict_s", BASELINE), column("predict_s", label)))
        gate = relative_loss(counts[label], counts[BASELINE]) if has_loss else None
        pairs = ((given, answers[BASELINE][key]) for key, given in answers[label].items())
        predict_s = median(column("predict_s", label))
        return replace(
            one,
            windows_per_s=median(speeds),
            low=min(speeds),
            high=max(speeds),
            times_baseline=median(ratios),
            predict_s=predict_s,
            memory_mb=median(column("memory_mb", label)),
            first_start_s=own[0]["first_start_s"],
            micro_f1=own[0]["micro_f1"],
            changed=sum(not same_answers(*pair) for pair in pairs),
            loss=(gate.loss, gate.low) if gate else None,
            busy=sum(run["busy"] for run in own),
            ratios=ratios if quiet else (),
            questions_per_s=len(answers[label]) / predict_s if has_lengths else None,
        )

    def column(field: str, label: str) -> list[float]:
        counted = (run for run in runs if run["round"] in (quiet or rounds))
        return [run[field] for run in counted if run["label"] == label]

    has_lengths = len({one.max_seq_length for one in asked}) > 1
    rows = list(map(figures, asked))
    return sorted(rows, key=lambda one: -(one.questions_per_s or one.windows_per_s or 0.0))


def _changes(baseline: FinishedRun, answers: Answers) -> list[dict[str, Any]]:
    """Returns the first questions with several answers."""
    changes = list[dict[str, Any]]()
    for source, example in baseline.sources():
        labels = {name: predictions[example.example_id] for name, predictions in answers.items()}
        if all(same_answers(label, labels[BASELINE]) for label in labels.values()):
            continue
        given = {}
        for name, label in labels.items():
            shown, details = entries(Question(example, source, label), [], 0)
            given[name] = details["given"] | {"outcome": shown["o"][0]}
        changes.append({"question": example.question, "answers": given})
    return changes[:MAX_CHANGES]
