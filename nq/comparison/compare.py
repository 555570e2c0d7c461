"""Measures rows of settings against each other, in rounds of runs of ``nq answer``.

A row is a profile with a model, a batch size and a window length. In round 0 one row of each model
and window length runs, which prepares the windows and does not count. In each further round all
rows run in turn, so that a change of the machine's speed affects all; a round with a busy run does
not count for the verdict. What is measured is kept at once; an equal comparison runs what is
missing, and busy rounds again.
"""

import contextlib
import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median

from nq import extras, storage
from nq.comparison.models import Entrant, find_entrants, judged_answers, save_judged
from nq.comparison.page import Comparison, comparison_page
from nq.comparison.record import record
from nq.comparison.rounds import ChangedError, Run, device_in_process, measured, reopened, run_all
from nq.comparison.runs import ComparedRuns, compared_rows
from nq.comparison.verdict import MIN_ROUNDS, advice, is_busy
from nq.config import TrackingConfig
from nq.errors import DamagedError, Error, check_argument, is_count
from nq.formats import input_files
from nq.formats.own_data import PageFolder
from nq.inference.profile import BASELINE, THESIS, Profile, profiles
from nq.memo import REQUEST, Memo
from nq.model.model import Model
from nq.progress import reporting
from nq.questions import Questions, page_folder
from nq.report.comparison import CHOSEN, DECISIONS, SHIPPED, ComparisonRow
from nq.runs.folder import COMPARISON_PAGE, FinishedRun
from nq.runs.measure import OnPhase, machine
from nq.runs.profile_choice import CANDIDATES, COMPARED, choices, comparison_key, default_choice
from nq.runs.scoring import RunProgress
from nq.text import counted

MEASURED = "measured"
"""The memo of all rounds in the folder of a comparison."""
COMPARISON = storage.Kind(
    name="comparison",
    what="a comparison of nq compare",
    files="|".join((*map(re.escape, (COMPARED, COMPARISON_PAGE)), f"{MEASURED}/.+")),
    folders=MEASURED,
)
DEVICE = "GPU" if Path("/dev/nvidiactl").exists() else "CPU"
ALL = tuple(map(str, profiles(THESIS)))
DEFAULT = default_choice(DEVICE, mixed=False), default_choice(DEVICE)
PACKAGES = ("nq-pipeline", "tensorflow", "tensorflow-cpu", "openvino", "onnxruntime")
"""Those whose versions the page shows."""
SETS = {"default": DEFAULT, "thesis": ALL, "all": (*ALL, *CANDIDATES[DEVICE])}


def compare(
    data: str | Path | Iterable[str | Path],
    profiles: Profile | str | Iterable[Profile | str] | None = None,
    *,
    model: str | Path | None = None,
    models: str | Path | Sequence[str | Path] = (),
    pages: PageFolder | str | Path | None = None,
    batch_sizes: Sequence[int] = (),
    max_seq_lengths: Sequence[int] = (),
    rounds: int = 3,
    limit: int | None = None,
    decisions: str = CHOSEN,
    save_tuned: str | Path | None = None,
    output: str | Path | None = None,
    options: Sequence[str] = (),
    track: TrackingConfig | None = None,
    progress: RunProgress | None = None,
    on_phase: OnPhase | None = None,
) -> Comparison:
    """Measures profiles or models against each other on the same questions.

    Args:
        profiles: such as ``["mixed", "mixed+xla"]``; ``"default"``, ``"thesis"`` and ``"all"``
            stand for several. Of one ``model``, ``baseline`` and what ``"auto"`` would take are
            always measured; each of several ``models`` has by default what ``"auto"`` would take.
        models: folders or names of models, in place of ``model``.
        pages: the folder of the pages that questions name.
        batch_sizes: windows in a batch; each profile is measured with each of them.
        max_seq_lengths: pieces in a window; likewise.
        rounds: how many count for the speed.
        limit: number of the first questions to answer; by default all.
        decisions: by which ``models`` are judged: ``"shipped"`` are their own, ``"fitted"`` those
            fitted to each half of the questions and judged on the other, ``"chosen"`` the fitted
            ones only where they are better beyond chance (``nq.comparison.models.judged_answers``).
        save_tuned: a new folder for the model to take, with the decision by which it is judged.
        output: folder of the comparison, by default one in ``runs`` named by data, models, options
            and processor; one that was interrupted is continued.
        options: of ``nq answer`` for all runs, such as ``["--threads", "8"]``.
        track: where MLflow records a run for each row, and one above them; by default nowhere.
        progress, on_phase: receive completed runs, and what is measured; by default a bar does.

    Returns:
        A list with a row for each model, profile and size, the fastest first; those that failed
        come last, with the reason. Its attribute ``folder`` is that of the comparison.

    Raises:
        Error: the folder has another comparison or files of others; a model is given twice; every
            model failed, or baseline of the only one; or no model can be saved.
        ValueError, OSError: a profile or a model is unknown, or a file cannot be read or written.
    """
    check_argument(is_count(rounds), "rounds", rounds, "a whole number from 1 on")
    if limit is not None:
        check_argument(is_count(limit), "limit", limit, "a whole number from 1 on, or None")
        options = ["--limit", str(limit), *options]
    check_argument(not (models and model), "model", model, "None, since models are given")
    models = [models] if isinstance(models, str | Path) else models
    check_argument(decisions in DECISIONS, "decisions", decisions, f"one of {DECISIONS}")
    check_argument(
        bool(models) or save_tuned is None, "save_tuned", save_tuned, "None without models"
    )
    options = [*options, *(["--keep-scores"] if models and decisions != SHIPPED else [])]
    if save_tuned is not None:
        storage.check_folder(Path(save_tuned), storage.PART)
    entrants, started = find_entrants(models or [model], bool(models)), time.time()
    with (
        reporting(progress, on_phase, "compare", "runs") as (report, phase),
        _opened(data, entrants, page_folder(pages), options, output) as (questions, own, memo),
    ):
        folder, recorded = memo.folder.parent, reopened(memo)
        rows = _asked(
            entrants, _profiles(profiles), batch_sizes, max_seq_lengths, questions, folder
        )
        by_name = {one.name: one for one in entrants}

        def measure(number: int, one: ComparisonRow) -> Run:
            label, entrant = f"{one.label}, round {number} of {rounds}", by_name[one.model]
            phase(label)
            repeating = partial(phase, f"{label}: repeating, the machine was busy")
            is_right = partial(_is_right, folder, questions, entrant.model, one)
            return measured(number, one, [*own, *entrant.options], memo, is_right, repeating)

        needed = "" if models else rows[0].label
        with _unchanged(questions, entrants, memo):
            runs, errors = run_all(_steps(rows, rounds), measure, memo, report, needed)
            if not runs:
                raise Error(f"no model could be measured: {next(iter(errors.values()))}")
            names = {run["label"]: run["name"] for run in runs}
            finished = {
                one.label: FinishedRun(folder / names[one.label], questions.files, check=False)
                for one in rows
                if one.label in names
            }
            phase("judging the answers")
            to_judge = finished.items() if models else ()
            judged = {label: judged_answers(run, decisions) for label, run in to_judge}
            answered = ComparedRuns(finished, judged, by_text=bool(models))
        timed = _timed(rows, runs, by_name, answered.n_questions)
        failed = [replace(one, error=errors[one.label]) for one in rows if one.label in errors]
        result = Comparison([*compared_rows(timed, answered), *failed], folder / COMPARISON_PAGE)
        take, reason = advice(result)
        only = next(iter(finished.values())).job.model
        _write_page(result, reason, questions, answered, "" if models else only.name)
        values = {
            "machine": machine(),
            "profiles": [one.label for one in result],
            "runs": runs,
            "take": take,
            "agreement": answered.agreement(),
            "recorded": recorded,
        }
        if not models and not is_busy(result):  # for the profile auto
            values["key"] = comparison_key(only, questions)
        storage.write_json(folder / COMPARED, values)
        if track:
            record(track, result, values, finished, started)
        if save_tuned is not None:
            if not take:
                raise Error(f"no model is saved: {reason}")
            phase(f"{take}: fitting a decision to all questions")
            save_judged(finished[take], judged[take], save_tuned)
    return result


def _steps(rows: Sequence[ComparisonRow], rounds: int) -> list[tuple[int, ComparisonRow]]:
    preparing = {(one.model, one.max_seq_length): one for one in reversed(rows)}.values()
    steps = [*((0, one) for one in preparing), *product(range(1, rounds + 1), rows)]
    return sorted(steps, key=lambda step: (step[0], rows.index(step[1])))


def _is_right(
    folder: Path, questions: Questions, model: Model, asked: ComparisonRow, run: Run
) -> bool:
    """Returns whether the folder of a run has one of these questions, this model and this row."""
    try:
        finished = FinishedRun(folder / run["name"], check=False)
        has_read = finished.has_read(questions, model)
    except (Error, OSError, ValueError):
        return False
    job = finished.job
    has_profile = str(job.profile) == asked.profile
    has_batch = asked.batch_size in (None, job.compute.batch_size)
    has_windows = asked.max_seq_length in (None, job.model.windows.max_seq_length)
    return has_read and has_profile and has_batch and has_windows


@contextlib.contextmanager
def _unchanged(questions: Questions, entrants: Sequence[Entrant], memo: Memo) -> Iterator[None]:
    """Raises ``Error`` if data or models have changed in the block; nothing measured is kept."""
    failure: Exception | None = None
    try:
        yield
    except (Error, OSError, ValueError) as error:
        failure = error
    is_changed = isinstance(failure, ChangedError)
    for check in (questions.check_same, *(one.model.check_same for one in entrants)):
        try:
            check()
        except (Error, OSError, ValueError) as error:  # it names what has changed
            failure, is_changed = error, True
    if is_changed:
        memo.clear()
    if failure is not None:
        raise failure


def _asked(
    entrants: Sequence[Entrant],
    profiles: Sequence[str],
    batch_sizes: Sequence[int],
    max_seq_lengths: Sequence[int],
    questions: Questions,
    folder: Path,
) -> list[ComparisonRow]:
    """Returns the rows to measure; with a model of no name, baseline is the first."""
    rows, device = list[ComparisonRow](), device_in_process()
    for one in entrants:
        *chosen, _ = choices(one.model, questions, folder.parent, device)
        names = profiles or (chosen[1:] if one.name else DEFAULT)
        asked = [
            ComparisonRow(name, model=one.name, batch_size=n, max_seq_length=k)
            for name, n, k in product(names, batch_sizes or (None,), max_seq_lengths or (None,))
        ]
        always = [] if one.name else [ComparisonRow(name) for name in (BASELINE, *chosen)]
        rows += [*always[:1], *asked, *always[1:]]
    return list(dict.fromkeys(rows))


def _profiles(profiles: Profile | str | Iterable[Profile | str] | None) -> list[str]:
    """Returns the names of profiles, and of those that a word stands for."""
    wanted = [profiles] if isinstance(profiles, str | Profile) else list(profiles or ())
    return [str(Profile.of(name)) for one in wanted for name in SETS.get(str(one), (one,))]


def _write_page(
    rows: Comparison, reason: str, questions: Questions, answered: ComparedRuns, model: str
) -> None:
    """Writes the page; ``model`` is the name of the only model, else empty."""
    what = [("model", {one.model for one in rows} - {""}), ("profile", {o.profile for o in rows})]
    count = next(counted(len(several), name) for name, several in what if several)
    title = f"{count} on {Path(input_files.shown(questions.files[0])).name}"
    about = [
        counted(answered.n_questions, "question"),
        *({model} - {""}),
        machine(),
        *(f"{name} {version}" for name, version in extras.versions(PACKAGES).items()),
        time.strftime("%Y-%m-%d"),
    ]
    with storage.atomic_write(rows.page) as page:
        agreement = None if model else answered.agreement()
        page.write(comparison_page(rows, title, reason, about, answered.changes, agreement))


@contextlib.contextmanager
def _opened(
    data: str | Path | Iterable[str | Path],
    entrants: Sequence[Entrant],
    pages: PageFolder | None,
    options: Sequence[str],
    output: str | Path | None,
) -> Iterator[tuple[Questions, list[str], Memo]]:
    """Holds the folder of a comparison; yields questions, options of all runs and the memo.

    What is measured depends on all arguments; without ``output`` these name the folder. ``Error``
    if the folder has measurements of others.
    """
    with contextlib.ExitStack() as stack:
        paths = input_files.path_list("data", data)
        questions = stack.enter_context(Questions.open(paths, pages))
        files, read = [*questions.files], questions.key
        described = {
            "data": [file["sha256"] for file in read["inputs"]],
            "pages": read.get("pages"),
            "models": [one.model.key for one in entrants],
            "options": list(options),
            "processors": machine(),
        }
        request = json.loads(json.dumps(described))
        named = Path("runs", f"compare-{storage.digest_json(request)[:10]}")
        folder = named if output is None else Path(output)
        stack.enter_context(storage.hold(folder, COMPARISON, files))
        memo, stored = Memo(folder / MEASURED), request
        with contextlib.suppress(FileNotFoundError, DamagedError):
            stored = memo.values(REQUEST)
        if other := [key for key in {**request, **stored} if request.get(key) != stored.get(key)]:
            what = " and ".join(other)
            raise Error(f"{folder} has measurements of other {what}: give another --output")
        own = ["--data", *files, *options, "--root", str(folder)]
        own += [] if pages is None else ["--pages", pages.folder, "--page-column", pages.column]
        yield questions, own, Memo.open(memo.folder, request)


def _timed(
    rows: Sequence[ComparisonRow],
    runs: Sequence[Run],
    entrants: Mapping[str, Entrant],
    n_questions: int,
) -> list[ComparisonRow]:
    """Returns the rows that have runs with their figures, speeds against the first one's.

    The speeds are of the quiet rounds, or of all if these are too few. Where rows have windows of
    several lengths, or several models, they have a speed in questions too.
    """
    rows = [one for one in rows if any(run["label"] == one.label for run in runs)]
    rounds = {run["round"] for run in runs} - {0}
    quiet = rounds - {run["round"] for run in runs if run["busy"]}
    counting = quiet if len(quiet) >= MIN_ROUNDS else rounds
    has_models = any(one.model for one in rows)
    has_sizes = has_models or len({one.max_seq_length for one in rows}) > 1
    by_label = {
        one.label: [run for run in runs if run["label"] == one.label and run["round"] in counting]
        for one in rows
    }
    first, result = by_label[rows[0].label], list[ComparisonRow]()
    for one in rows:
        own = by_label[one.label]
        speeds, seconds = ([run[name] for run in own] for name in ("windows_per_s", "predict_s"))
        ratios = [run["predict_s"] / own_s for run, own_s in zip(first, seconds, strict=True)]
        predict_s = median(seconds)
        result.append(
            replace(
                one,
                windows_per_s=median(speeds),
                low=min(speeds),
                high=max(speeds),
                times_baseline=None if has_models else median(ratios),
                predict_s=predict_s,
                memory_mb=median(run["memory_mb"] for run in own),
                first_start_s=own[0]["first_start_s"],
                micro_f1=own[0]["micro_f1"],
                quality=own[0]["quality"] if has_models else {},
                size_mb=entrants[one.model].model.size_mb if has_models else None,
                busy=sum(run["busy"] for run in own),
                ratios=tuple(ratios),
                questions_per_s=n_questions / predict_s if has_sizes else None,
            )
        )
    return result
