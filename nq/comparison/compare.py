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
from operator import truediv
from pathlib import Path
from statistics import median
from typing import Any

from nq import extras, storage
from nq.comparison import record
from nq.comparison.models import (
    ComparedAnswers,
    Entrant,
    Judged,
    find_entrants,
    judged_answers,
    save_judged,
)
from nq.comparison.page import PAGE, Comparison, comparison_page
from nq.comparison.rounds import Run, device_in_process, measured, reopened, run_all
from nq.comparison.verdict import advice
from nq.config import TrackingConfig
from nq.errors import DamagedError, Error, check_argument, is_count
from nq.evaluation.gate import f1_behind, relative_loss
from nq.formats import input_files
from nq.formats.own_data import PageFolder
from nq.inference.profile import BASELINE, THESIS, Profile, profiles
from nq.memo import REQUEST, Memo
from nq.progress import reporting
from nq.questions import Questions, page_folder
from nq.report.comparison import CHOSEN, DECISIONS, SHIPPED, ComparisonRow
from nq.runs.folder import FinishedRun
from nq.runs.measure import OnPhase, machine
from nq.runs.profile_choice import CANDIDATES, COMPARED, choices, comparison_key, default_choice
from nq.runs.record import quality
from nq.runs.scoring import RunProgress
from nq.text import counted

MEASURED = "measured"
"""The memo of all rounds in the folder of a comparison."""
COMPARISON = storage.Kind(
    name="comparison",
    what="a comparison of nq compare",
    files="|".join((*map(re.escape, (COMPARED, PAGE)), f"{MEASURED}/.+")),
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
            label = f"{one.label}, round {number} of {rounds}"
            phase(label)
            repeating = partial(phase, f"{label}: repeating, the machine was busy")
            return measured(number, one, [*own, *by_name[one.model].options], memo, repeating)

        preparing = {(one.model, one.max_seq_length): one for one in reversed(rows)}.values()
        steps = [*((0, one) for one in preparing), *product(range(1, rounds + 1), rows)]
        steps.sort(key=lambda step: (step[0], rows.index(step[1])))
        runs, errors = run_all(steps, measure, memo, report, "" if models else rows[0].label)
        _check_measured(runs, errors, questions, entrants, memo)
        paths = {run["label"]: folder / run["name"] for run in runs}
        finished = {
            one.label: FinishedRun(paths[one.label], questions.files, check=False)
            for one in rows
            if one.label in paths
        }
        phase("judging the answers")
        decisions = decisions if models else SHIPPED
        judged = {label: judged_answers(run, decisions) for label, run in finished.items()}
        answered = ComparedAnswers(finished, judged, by_text=bool(models))
        rows = [replace(one, error=errors.get(one.label, "")) for one in rows]
        result = Comparison(_rows(rows, runs, answered, judged, by_name), folder)
        take, reason = advice(result)
        only = next(iter(finished.values())).job.model
        _write_page(result, reason, questions, answered, "" if models else only.name)
        values: dict[str, Any] = {
            "machine": machine(),
            "profiles": [one.label for one in result],
            "runs": runs,
        }
        values |= {"take": take, "agreement": answered.agreement()}
        values |= {} if models else {"key": comparison_key(only, questions)}
        storage.write_json(folder / COMPARED, {**values, "recorded": recorded})
        new = {f"{run['label']}, {run['wall_s']} s" for run in runs} - {*recorded}
        if track and new and record.record(track, result, runs, finished, started):
            recorded = [*recorded, *sorted(new)]
            storage.write_json(folder / COMPARED, {**values, "recorded": recorded})
        if save_tuned is not None:
            if not take:
                raise Error(f"no model is saved: {reason}")
            phase(f"{take}: fitting a decision to all questions")
            save_judged(finished[take], judged[take], save_tuned)
    return result


def _check_measured(
    runs: Sequence[Run],
    errors: Mapping[str, str],
    questions: Questions,
    entrants: Sequence[Entrant],
    memo: Memo,
) -> None:
    """Raises ``Error`` if all runs failed, or data or models have changed meanwhile.

    What was measured may be of other data or models then, and nothing of it is kept.
    """
    if not runs:
        raise Error(f"no model could be measured: {next(iter(errors.values()))}")
    try:
        questions.check_same()
        for one in entrants:
            one.model.check_same()
    except Error:
        memo.clear()
        raise


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
    rows: Comparison, reason: str, questions: Questions, answered: ComparedAnswers, model: str
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
    with storage.atomic_write(rows.folder / PAGE) as page:
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
            "models": [
                [
                    {
                        key: value
                        for key, value in one.model.to_dict().items()
                        if "model" not in key
                    },
                    *(
                        digest
                        for m in one.model.models
                        for digest in (m.digest, m.tokenizer.digest)
                    ),
                ]
                for one in entrants
            ],
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


def _rows(
    asked: Sequence[ComparisonRow],
    runs: Sequence[Run],
    answered: ComparedAnswers,
    judged: Mapping[str, Judged],
    entrants: Mapping[str, Entrant],
) -> list[ComparisonRow]:
    """Returns the rows with their figures, the fastest first; those that failed come last.

    They are compared with the first that did not fail.

    The figures are of the quiet rounds, or of all if none was. Where rows have windows of several
    lengths, or several models, the speed in questions tells the fastest.
    """
    rows, has_models = [one for one in asked if not one.error], any(one.model for one in asked)
    reference = rows[0]
    counts, base = answered.counts, answered.counts[reference.label]
    has_loss = not has_models and len(base) > 1 and any(correct for correct, *_ in base)
    rounds = {run["round"] for run in runs} - {0}
    quiet = rounds - {run["round"] for run in runs if run["busy"]}

    def figures(one: ComparisonRow) -> ComparisonRow:
        label = one.label
        own = [run for run in runs if run["label"] == label and run["round"]]
        speeds = column("windows_per_s", label)
        predict_s = column("predict_s", label)
        ratios = tuple(map(truediv, column("predict_s", reference.label), predict_s))
        gate = relative_loss(counts[label], base) if has_loss else None
        return replace(
            one,
            windows_per_s=median(speeds),
            low=min(speeds),
            high=max(speeds),
            times_baseline=None if has_models else median(ratios),
            predict_s=median(predict_s),
            memory_mb=median(column("memory_mb", label)),
            first_start_s=own[0]["first_start_s"],
            micro_f1=own[0]["micro_f1"],
            quality=own[0]["quality"] if has_models else {},
            size_mb=entrants[one.model].size_mb if has_models else None,
            fitted=judged[label].fitted,
            decision=judged[label].decision if has_models else "",
            judged=quality(answered.evaluations[label].metrics()) if has_models else {},
            changed=answered.changed[label],
            against=reference.model or reference.profile,
            loss=(gate.loss, gate.low) if gate else None,
            busy=sum(run["busy"] for run in own),
            ratios=ratios if quiet else (),
            questions_per_s=answered.n_questions / median(predict_s) if has_sizes else None,
        )

    def column(field: str, label: str) -> list[float]:
        counting = (run for run in runs if run["round"] in (quiet or rounds))
        return [run[field] for run in counting if run["label"] == label]

    has_sizes = has_models or len({one.max_seq_length for one in rows}) > 1
    rows = list(map(figures, rows))
    if has_models and base:
        best = counts[max(rows, key=lambda one: one.f1 or 0.0).label]
        rows = [replace(one, behind=f1_behind(counts[one.label], best)) for one in rows]
    rows.sort(key=lambda one: -(one.questions_per_s or one.windows_per_s or 0.0))
    return rows + [one for one in asked if one.error]
