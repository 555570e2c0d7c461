"""Measures rows of settings against each other, in rounds of runs.

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
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from nq import extras, storage
from nq.config import TrackingConfig
from nq.errors import ChangedError, DamagedError, Error, check_argument, is_count
from nq.formats import input_files
from nq.inference.profile import BASELINE, CANDIDATES, THESIS, Profile, default_choice, profiles
from nq.lab.choose import COMPARED, choices, comparison_key
from nq.lab.compare import Answers
from nq.lab.models import judged_answers, name_models, save_judged
from nq.lab.page import Comparison, comparison_page
from nq.lab.record import record
from nq.lab.rounds import Run, device_in_process, measured, reopened, run_all
from nq.lab.rows import CHOSEN, DECISIONS, SHIPPED, Row
from nq.lab.verdict import MIN_ROUNDS, is_busy
from nq.memo import REQUEST, Memo
from nq.model.model import Model
from nq.progress import reporting
from nq.questions import Questions
from nq.runs.folder import COMPARISON_PAGE, FinishedRun
from nq.runs.job import Job
from nq.runs.measure import OnPhase, machine
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
    job: Job | str | Path | Iterable[str | Path],
    profiles: Profile | str | Iterable[Profile | str] | None = None,
    *,
    models: str | Path | Sequence[str | Path] | Mapping[str, Model] = (),
    batch_sizes: Sequence[int] = (),
    max_seq_lengths: Sequence[int] = (),
    rounds: int = 3,
    decisions: str = CHOSEN,
    save_tuned: str | Path | None = None,
    track: TrackingConfig | None = None,
    progress: RunProgress | None = None,
    on_phase: OnPhase | None = None,
    **settings: Any,
) -> Comparison:
    """Measures profiles or models against each other on the same questions.

    Args:
        job: files of questions, or the job of all runs but for what the rows tell. Its ``output``
            is the folder of the comparison, by default one in ``root`` named by data, models,
            settings and processor; one that was interrupted is continued.
        profiles: such as ``["mixed", "mixed+xla"]``; ``"default"``, ``"thesis"`` and ``"all"``
            stand for several. Of one model, ``baseline`` and what ``nq answer`` would take are
            always measured; each of several ``models`` has by default what that would take.
        models: folders or names of models in place of that of the job, or opened ones by name.
        batch_sizes: windows in a batch; each profile is measured with each of them.
        max_seq_lengths: pieces in a window; likewise.
        rounds: how many count for the speed.
        decisions: by which ``models`` are judged: ``"shipped"`` are their own, ``"fitted"`` those
            fitted to each half of the questions and judged on the other, ``"chosen"`` the fitted
            ones only where they are better beyond chance (``nq.lab.models.judged_answers``).
        save_tuned: a new folder for the model to take, with the decision by which it is judged.
        track: where MLflow records a run for each row, and one above them; by default nowhere.
        progress, on_phase: receive completed runs, and what is measured; by default a bar does.
        settings: fields of ``nq.Job``, such as ``model``, ``limit`` or ``output``.

    Returns:
        A list with a row for each model, profile and size, the fastest first; those that failed
        come last, with the reason. Its attribute ``folder`` is that of the comparison.

    Raises:
        Error: the folder has another comparison or files of others; a model is given twice; every
            model failed, or baseline of the only one; data or models have changed meanwhile; or no
            model can be saved.
        ValueError, OSError: a profile or a model is unknown, or a file cannot be read or written.
    """
    started = time.time()
    models = _opened_models(models)
    check_argument(is_count(rounds), "rounds", rounds, "a whole number from 1 on")
    check_argument(decisions in DECISIONS, "decisions", decisions, f"one of {DECISIONS}")
    if models:
        model = settings.get("model")
        check_argument("model" not in settings, "model", model, "None, since models are given")
        settings["model"] = next(iter(models.values()))
    else:
        check_argument(save_tuned is None, "save_tuned", save_tuned, "None without models")
    if save_tuned is not None:
        storage.check_folder(Path(save_tuned), storage.PART)
    job = replace(job, **settings) if isinstance(job, Job) else Job(job, **settings)
    if models and decisions != SHIPPED:
        job = replace(job, keep_scores=True)
    entrants = models or {"": job.model}
    names = _profiles(profiles)
    with (
        reporting(progress, on_phase, "compare", "runs") as (report, phase),
        Questions.open(job.files, job.pages, job.limit) as questions,
        _opened(job, questions, entrants) as memo,
    ):
        folder = memo.folder.parent
        recorded = reopened(memo)
        job = replace(job, files=questions.files, pages=questions.pages, output=None, root=folder)
        rows = _asked(entrants, names, batch_sizes, max_seq_lengths, questions, folder)

        def measure(number: int, one: Row) -> Run:
            label = f"{one.label}, round {number} of {rounds}"
            own = _job(job, entrants[one.model], one)
            return measured(number, one, own, questions, memo, label, phase)

        with _unchanged(questions, entrants.values(), memo):
            runs, errors = run_all(
                _steps(rows, rounds), measure, memo, report, needed="" if models else rows[0].label
            )
            if not runs:
                raise Error(f"no model could be measured: {next(iter(errors.values()))}")
            finished = {
                run["label"]: FinishedRun(folder / run["name"], questions.files, check=False)
                for run in runs
                if run["round"] == 1
            }
            phase("judging the answers")
            judged = {
                label: judged_answers(run, decisions) for label, run in finished.items() if models
            }
            answers = Answers(
                finished, next(iter(finished.values())).sources(), judged, by_text=bool(models)
            )
        timed = answers.rows(_timed(rows, runs, entrants, answers.n_questions))
        timed.sort(key=lambda one: -(one.questions_per_s or one.windows_per_s or 0.0))
        failed = [replace(one, error=errors[one.label]) for one in rows if one.label in errors]
        result = Comparison([*timed, *failed], folder / COMPARISON_PAGE)
        _write_page(result, questions, answers, "" if models else job.model.name)
        values = {
            "machine": machine(),
            "profiles": [one.label for one in result],
            "runs": runs,
            "take": result.take,
            "agreement": answers.agreement(),
            "recorded": recorded,
        }
        if not models and not is_busy(result):  # for the profile auto
            values["key"] = comparison_key(job.model, questions)
        storage.write_json(folder / COMPARED, values)
        if track:
            record(track, result, values, finished, started)
        if save_tuned is not None:
            if not result.take:
                raise Error(f"no model is saved: {result.reason}")
            phase(f"{result.take}: fitting a decision to all questions")
            save_judged(finished[result.take], judged[result.take], save_tuned)
    return result


def _opened_models(
    models: str | Path | Sequence[str | Path] | Mapping[str, Model],
) -> Mapping[str, Model]:
    if isinstance(models, Mapping):
        return models
    given = [models] if isinstance(models, str | Path) else models
    return name_models((one, Model.open(one)) for one in given)


def _job(job: Job, model: Model, one: Row) -> Job:
    """Returns the job of a row."""
    compute = job.compute
    if one.batch_size is not None:
        compute = replace(compute, batch_size=one.batch_size)
    if one.max_seq_length is not None:
        model = model.with_windows(max_seq_length=one.max_seq_length)
    return replace(job, model=model, profile=one.profile, compute=compute)


def _steps(rows: Sequence[Row], rounds: int) -> list[tuple[int, Row]]:
    preparing = {(one.model, one.max_seq_length): one for one in reversed(rows)}.values()
    steps = [*((0, one) for one in preparing), *product(range(1, rounds + 1), rows)]
    return sorted(steps, key=lambda step: (step[0], rows.index(step[1])))


@contextlib.contextmanager
def _unchanged(questions: Questions, models: Iterable[Model], memo: Memo) -> Iterator[None]:
    """Raises ``ChangedError`` if data or models changed in the block; nothing measured is kept."""
    try:
        try:
            yield
        finally:  # what has changed explains other errors
            questions.check_same()
            for model in models:
                model.check_same()
    except ChangedError:
        memo.clear()
        raise


def _asked(
    entrants: Mapping[str, Model],
    profiles: Sequence[str],
    batch_sizes: Sequence[int],
    max_seq_lengths: Sequence[int],
    questions: Questions,
    folder: Path,
) -> list[Row]:
    """Returns the rows to measure; with a model of no name, baseline is the first."""
    rows = list[Row]()
    device = device_in_process()
    for name, model in entrants.items():
        default, taken, _ = choices(model, questions, folder.parent, device)
        asked = [
            Row(profile, model=name, batch_size=size, max_seq_length=length)
            for profile, size, length in product(
                profiles or ([taken] if name else DEFAULT),
                batch_sizes or (None,),
                max_seq_lengths or (None,),
            )
        ]
        rows += asked if name else [Row(BASELINE), *asked, Row(default), Row(taken)]
    return list(dict.fromkeys(rows))


def _profiles(profiles: Profile | str | Iterable[Profile | str] | None) -> list[str]:
    """Returns the names of profiles, and of those that a word stands for."""
    wanted = [profiles] if isinstance(profiles, str | Profile) else list(profiles or ())
    return [str(Profile.of(name)) for one in wanted for name in SETS.get(str(one), (one,))]


def _write_page(rows: Comparison, questions: Questions, answers: Answers, model: str) -> None:
    """Writes the page; ``model`` is the name of the only model, else empty."""
    what = [("model", {one.model for one in rows} - {""}), ("profile", {o.profile for o in rows})]
    count = next(counted(len(several), name) for name, several in what if several)
    title = f"{count} on {Path(input_files.shown(questions.files[0])).name}"
    about = [
        counted(answers.n_questions, "question"),
        *({model} - {""}),
        machine(),
        *(f"{name} {version}" for name, version in extras.versions(PACKAGES).items()),
        time.strftime("%Y-%m-%d"),
    ]
    agreement = None if model else answers.agreement()
    with storage.atomic_write(rows.page) as page:
        page.write(comparison_page(rows, title, about, answers.changes, agreement))


@contextlib.contextmanager
def _opened(job: Job, questions: Questions, models: Mapping[str, Model]) -> Iterator[Memo]:
    """Holds the folder of a comparison; yields its memo.

    What is measured depends on data, models and settings; without ``output`` these name the folder.
    ``Error`` if the folder has measurements of others.
    """
    read = questions.key
    options = {
        "limit": job.limit,
        "formats": job.formats,
        "keep_scores": job.keep_scores,
        **asdict(job.compute),
        "runner": job.beam and asdict(job.beam),
        "windows": [one.windows.to_dict() for one in models.values()],
        "decisions": [one.decision.to_dict() for one in models.values()],
    }
    described = {
        "data": [file["sha256"] for file in read["inputs"]],
        "pages": read.get("pages"),
        "models": [one.key for one in models.values()],
        "options": options,
        "processors": machine(),
    }
    request = json.loads(json.dumps(described))
    folder = job.output or job.root / f"compare-{storage.digest_json(request)[:10]}"
    with storage.hold(folder, COMPARISON, questions.files):
        memo = Memo(folder / MEASURED)
        stored = request
        with contextlib.suppress(FileNotFoundError, DamagedError):
            stored = memo.values(REQUEST)
        if other := [key for key in request if request[key] != stored.get(key)]:
            what = " and ".join(other)
            raise Error(f"{folder} has measurements of other {what}: give another --output")
        yield Memo.open(memo.folder, request)


def _timed(
    rows: Sequence[Row], runs: Sequence[Run], models: Mapping[str, Model], n_questions: int
) -> list[Row]:
    """Returns the rows that have runs with their figures, speeds against the first one's.

    The speeds are of the quiet rounds, or of all if these are too few. Where rows have windows of
    several lengths, or several models, they have a speed in questions too.
    """
    rounds = {run["round"] for run in runs} - {0}
    quiet = rounds - {run["round"] for run in runs if run["busy"]}
    counting = quiet if len(quiet) >= MIN_ROUNDS else rounds
    by_label = dict[str, list[Run]]()
    for run in runs:
        if run["round"] in counting:
            by_label.setdefault(run["label"], []).append(run)
    rows = [one for one in rows if one.label in by_label]
    has_models = any(one.model for one in rows)
    has_sizes = has_models or len({one.max_seq_length for one in rows}) > 1
    first = by_label[rows[0].label]
    result = list[Row]()
    for one in rows:
        own = by_label[one.label]
        speeds = [run["windows_per_s"] for run in own]
        predict_s = median(run["predict_s"] for run in own)
        pairs = zip(first, own, strict=True)
        ratios = [other["predict_s"] / run["predict_s"] for other, run in pairs]
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
                size_mb=models[one.model].size_mb if has_models else None,
                busy=sum(run["busy"] for run in own),
                ratios=tuple(ratios),
                questions_per_s=n_questions / predict_s if has_sizes else None,
            )
        )
    return result
