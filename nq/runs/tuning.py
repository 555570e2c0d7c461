"""Scores annotated questions, tunes the decision of the model by them and writes its folder."""

import contextlib
import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from nq import storage
from nq.bundle import bundled_pair
from nq.config import CascadeDecision, DecisionConfig
from nq.errors import Error
from nq.evaluation.tuning import MIN_TUNED, check_halves, tune_decision
from nq.formats.own_data import PageFolder
from nq.hub import name_of
from nq.inference.profile import DEFAULT_PROFILE, Profile
from nq.model.folder import SETTINGS, save_pair, save_settings
from nq.model.model import Model
from nq.progress import reporting
from nq.questions import Questions, mention_unnamed_pages
from nq.runs.config import Compute
from nq.runs.folder import RUN, RunFolder, check_output
from nq.runs.job import Job
from nq.runs.measure import Clock
from nq.runs.scoring import LocalExecutor, RunProgress
from nq.text import counted

log = logging.getLogger(__name__)


def tune(
    files: str | Path | Iterable[str | Path],
    model: str | Path | Model,
    profile: Profile | str = DEFAULT_PROFILE,
    compute: Compute = Compute(),
    keep_scores: bool = False,
    progress: RunProgress | None = None,
    pages: PageFolder | str | Path | None = None,
    output: str | Path | None = None,
    limit: int | None = None,
) -> dict[str, Any]:
    """Fits the decision of a model to one half of annotated data, as ``nq tune`` does.

    It is fitted on the even half, written into the model folder or a copy of it, and measured on
    the odd half. The fit starts from the decision of the model, which counts as 80 questions.

    Args:
        files: annotated files, globs or folders.
        model: a model folder or a pair folder; of two models that are in no pair folder yet
            ``nq.Model.open(MODEL, ranker=FOLDER)``, with ``output``.
        keep_scores: whether the scores are kept, so that tuning the same model again takes seconds.
        pages: the folder of the pages that questions name.
        output: a new folder, which gets a copy of the model with the decision in place of the
            model folder.
        limit: the largest number of records to read.

    Returns:
        The thresholds, and the figures of the odd half by name; those of the decision that the
        model had have ``before`` in their names.

    Raises:
        OSError: a file cannot be read or written.
        ValueError: the data have no annotations, none with even ids or none with odd ones; or an
            argument is wrong.
        Error: the model is an installed one, which is not written to, or it is being trained.
    """
    if output is not None:
        storage.check_folder(Path(output), storage.PART)
    if not isinstance(model, Model):
        opened = Model.open(model)
        model = opened if output else own_model(opened, model)
    elif output is None:
        own_model(model, model.folder)
    folder = model.folder
    own_decision = model.decision
    start = start_decision(model)
    with contextlib.ExitStack() as stack:
        model = replace(model, decision=unfitted_decision(model))
        job = Job(files, model, profile, pages=pages, compute=compute, limit=limit)
        job.profile.require()
        executor = LocalExecutor()
        check_output(job)
        questions = stack.enter_context(Questions.open(job.files, job.pages, limit))
        mention_unnamed_pages(questions)
        job = replace(job, files=questions.files)
        check_halves(questions.examples(), ", ".join(job.files))
        if output is None:
            storage.check_output_file(folder / SETTINGS, job.files)
            stack.enter_context(storage.hold_marked(folder))
        report, phase = stack.enter_context(reporting(progress, None, "predict", "windows"))
        request = job.request(questions)
        run = RunFolder(job.folder(request), {})
        stack.enter_context(storage.hold(run.path, RUN, job.sources))
        clock = Clock(phase)
        scoring = stack.enter_context(executor.open_answers(job, request, run, clock, report))
        tuned = tune_decision(scoring, start, before=own_decision)
        written = save_decision(model, tuned.decision, output)
        clock.finish(scoring.totals())
        if not keep_scores:
            scoring.memo.clear()
    made = scoring.windows
    if made.counts.dead_letters:
        records = counted(made.counts.dead_letters, "bad record")
        file = made.dead_letter_file
        log.warning("%s in %s, the first: %s", records, file, made.first_dead_letter())
    _warn_of_few(*tuned.half_sizes)
    before = thresholds(own_decision) if own_decision.rule == DecisionConfig.rule else {}
    return {
        **thresholds(tuned.decision),
        **{f"before_{name}": value for name, value in before.items()},
        **tuned.figures(),
        "yes_no_auc": tuned.yes_no_auc,
        "model": str(written),
        "truncated_pages": made.counts.truncated_pages,
        "unread_blocks": made.counts.unread_blocks,
    }


def thresholds(decision: DecisionConfig) -> dict[str, float]:
    """Returns the thresholds of a decision, by name."""
    return {
        "long_threshold": decision.long_threshold,
        "short_threshold": decision.short_threshold,
    }


def _warn_of_few(n_even: int, n_odd: int) -> None:
    """Tells that there are too few questions with gold in a half, if so."""
    if min(n_even, n_odd) < MIN_TUNED:
        log.warning(
            "little can be learnt: %s with gold and even ids, by which the decision is fitted, and "
            "%d with odd ids, by which it is measured: give %d of each or more",
            counted(n_even, "question"),
            n_odd,
            MIN_TUNED,
        )


def start_decision(model: Model) -> DecisionConfig:
    """Returns the decision from which a fit starts: that of the model, of both if there are two.

    Where it has none by the default rule, or none that was fitted to both, it is one of defaults.
    """
    is_of_one = model.ranker is not None and model.pair is None
    if is_of_one or model.decision.rule != DecisionConfig.rule:
        return unfitted_decision(model)
    return model.decision


def unfitted_decision(model: Model) -> DecisionConfig:
    """Returns the default rule with default weights; of both models if there are two."""
    if cascade := model.cascade:
        return CascadeDecision(
            max_answer_length=cascade.max_answer_length,
            read_blocks=cascade.read_blocks,
            first=cascade.first,
        )
    return DecisionConfig(max_answer_length=model.decision.max_answer_length)


def save_decision(model: Model, decision: DecisionConfig, output: str | Path | None = None) -> Path:
    """Writes a decision into the folder of the model, or of both, or into a new copy of it."""
    if output is not None:
        with storage.unfinished(Path(output).parent) as part:
            return model.copy(part / "model", decision).rename(output)
    if model.pair is not None and isinstance(decision, CascadeDecision):
        save_pair(model.pair, decision)
    else:
        files = model.reader.files
        save_settings(files.path, replace(files.settings, decision=decision))
    return model.folder


def own_model(model: Model, given: str | Path) -> Model:
    """Returns a model; ``Error`` if its folder is installed, or not the path that was given."""
    advice = "give a new folder for a tuned copy (--output)"
    if model.ranker is not None and model.pair is None:
        raise Error(f"{model.name} is two folders, and their decision is in neither: {advice}")
    is_installed = model.folder.is_relative_to(bundled_pair()) or name_of(model.folder)
    if is_installed or model.folder != Path(given):
        raise Error(f"{model.folder} is no folder of yours, and is not written to: {advice}")
    return model
