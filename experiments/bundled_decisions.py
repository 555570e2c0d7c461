"""Fits the decisions of the bundled models to excerpts, short pages and whole articles.

    python -m experiments.long_pages --data ../shared/data --output long.jsonl.gz
    python -m experiments.short_pages --data ../shared/data --output short.jsonl.gz
    python -m experiments.bundled_decisions --data ../shared/data --long long.jsonl.gz \\
        --short short.jsonl.gz --output decisions

Examples with even ids count. A set counts by its weight (``SETS``), so that none of them rules: the
first paragraph is the long answer in 44 to 71 % of the articles' questions that have one, in 3 of
40 on PAGES, and in 38 % in all of Natural Questions. The order of the steps:

1. The ranker alone: all weights of its blocks, and the threshold of long answers.
2. Both models: all weights, and both thresholds. The ranker's decision says which blocks are read.
3. The reader alone: of its decision, which ``nq tune`` fitted to dev and "long", the weight of
   pages of few blocks, and then those of the place in an article; all others stay.

``--output`` gets a copy of ``nq/bundled`` with these decisions.
"""

import argparse
import itertools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from experiments import command
from experiments.command import in_half
from experiments.training_data import read_records, write_records
from nq import storage
from nq.bundle import RANKER, READER, bundled_model, bundled_pair
from nq.config import CascadeDecision, DecisionConfig
from nq.evaluation.evaluate import example_gold
from nq.evaluation.nq_eval import Gold, Predictions
from nq.evaluation.tuning import FOLDS, best_thresholds, fold_of
from nq.model.folder import ModelFolder, save_settings
from nq.model.model import Model
from nq.postprocess.fit import (
    ChoiceSet,
    block_choices,
    fit_some_weights,
    fit_weights,
    option_choices,
)
from nq.postprocess.ranking import rank
from nq.records import Example, Scores
from nq.runs.folder import FinishedRun
from nq.runs.job import Job
from nq.runs.run import run

PROFILE = "mixed+buckets+openvino"
READ_BLOCKS = 4
PLACE_WEIGHTS = ("place", "lead", "words")
TRAIN_STEP = 3
"""Of the articles of training questions every third one is used."""


@dataclass(frozen=True)
class DataSet:
    """Pages to fit to.

    Args:
        weight: how many examples an example counts as.
        is_long: whether its pages are so long that ``prune`` is the default for them.
        has_places: whether its pages are articles with the blocks in their order.
        was_trained_on: whether the reader was trained on its questions, so that its confidence
            there tells nothing of thresholds.
    """

    weight: float
    is_long: bool = False
    has_places: bool = False
    was_trained_on: bool = False

    @property
    def repeats(self) -> int:
        """How often its predictions count where thresholds are chosen."""
        return 0 if self.was_trained_on else max(1, round(self.weight))


SETS = {
    "dev": DataSet(2.0),
    "short": DataSet(0.5),
    "long": DataSet(1.0, is_long=True),
    "whole-dev": DataSet(3.0, is_long=True, has_places=True),
    "pages": DataSet(6.0, is_long=True, has_places=True),
    "whole-train": DataSet(2.0, is_long=True, has_places=True, was_trained_on=True),
}


@dataclass(frozen=True)
class Scored:
    """An example of the even half with its scores by one or two models."""

    of: DataSet
    example: Example
    scores: Scores


def _options(parser: argparse.ArgumentParser) -> None:
    text = "folder with dev/ and pages/"
    command.add_option(parser, "data", Path, text)
    for name in ("long", "short"):
        text = f"the file of experiments.{name}_pages"
        command.add_option(parser, name, Path, text, metavar="FILE")
    text = "a new folder, for the models with their decisions"
    command.add_option(parser, "output", Path, text)


def fit(args: argparse.Namespace) -> int:
    """Runs the command."""
    storage.check_folder(args.output, storage.PART)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        files = _even_halves(args, folder)
        ranker = Model.open(bundled_model(RANKER), decision=DecisionConfig())
        ranked = fit_decision(
            list(_scored(ranker, files, folder)), ranker.decision, has_short_answers=False
        )
        first = replace(ranked, short_threshold=1.0)
        start = CascadeDecision(read_blocks=READ_BLOCKS, first=first, says_yes_no=False)
        pair = Model.open(bundled_pair(), decision=start)
        both = fit_decision(list(_scored(pair, files, folder)), start)
        reader = Model.open(bundled_model(READER))
        some = {name: path for name, path in files.items() if name not in ("dev", "long")}
        own = fit_reader(list(_scored(reader, some, folder)), reader.decision)
    pair.copy(args.output, both)
    decisions: dict[str, DecisionConfig] = {"ranker": first, "reader": own}
    for name, decision in decisions.items():
        files_of = ModelFolder(args.output / name)
        save_settings(files_of.path, replace(files_of.settings, decision=decision))
    decisions["both"] = both
    return command.show({name: str(one) for name, one in decisions.items()}, args)


def _even_halves(args: argparse.Namespace, folder: Path) -> dict[str, Path]:
    """Writes the examples with even ids of each set to a file."""
    sources = {
        "dev": args.data / "dev/nq-dev.jsonl.gz",
        "short": args.short,
        "long": args.long,
        "whole-dev": args.data / "pages/nq-whole-dev.jsonl.gz",
        "pages": args.data / "pages/nq-pages.jsonl.gz",
        "whole-train": args.data / "pages/nq-whole-train.jsonl.gz",
    }
    files = {name: folder / f"{name}.jsonl.gz" for name in SETS}
    for name, file in files.items():
        records = read_records([sources[name]])
        if SETS[name].was_trained_on:
            records = itertools.islice(records, 0, None, TRAIN_STEP)
        even = (one for one in records if in_half(int(one["example_id"]), "even"))
        write_records(file, even)
    return files


def _scored(model: Model, files: Mapping[str, Path], folder: Path) -> Iterator[Scored]:
    """Yields the examples of all sets with their scores by the models."""
    for name, file in files.items():
        profile = f"{PROFILE}+prune" if SETS[name].is_long else PROFILE
        job = Job([str(file)], model, profile, root=folder, keep_scores=True)
        for example, scores in FinishedRun(run(job).folder):
            yield Scored(SETS[name], example, scores)


def fit_decision(
    pages: Sequence[Scored], start: DecisionConfig, has_short_answers: bool = True
) -> DecisionConfig:
    """Returns a decision with all weights and both thresholds fitted to pages.

    The thresholds use predictions by weights that were fitted without the example.
    """
    sets = [_choices(page, start) for page in pages]
    folds = [fold_of(page.example.example_id) for page in pages]

    def fitted(left_out: int | None) -> DecisionConfig:
        kept = [both for both, fold in zip(sets, folds, strict=True) if fold != left_out]
        blocks = [block for block, _ in kept if block]
        options = [option for _, option in kept if option and has_short_answers]
        return replace(start, weights=fit_weights(blocks, options, start.weights))

    gold: Gold = {}
    predictions: Predictions = {}
    by_fold = [fitted(fold) for fold in range(FOLDS)]
    for page, fold in zip(pages, folds, strict=True):
        labels = example_gold(page.example)
        if fold is None or not labels:
            continue
        prediction = rank(page.example, page.scores, by_fold[fold]).prediction()
        for repeat in range(page.of.repeats):
            key = f"{page.of}{page.example.example_id}/{repeat}"
            gold[key] = labels
            predictions[key] = prediction
    return best_thresholds(gold, predictions, fitted(None))


def fit_reader(pages: Sequence[Scored], decision: DecisionConfig) -> DecisionConfig:
    """Returns the decision of the reader alone, with some of its weights fitted to pages."""
    weights = decision.weights
    for names, has_places in ((("few_blocks",), False), (PLACE_WEIGHTS, True)):
        weights = replace(weights, **dict.fromkeys(names, 0.0))
        some = [page for page in pages if page.of.has_places == has_places]
        sets = [_choices(page, decision)[0] for page in some]
        weights = fit_some_weights([one for one in sets if one], weights, names)
    return replace(decision, weights=weights)


def _choices(page: Scored, decision: DecisionConfig) -> tuple[ChoiceSet | None, ChoiceSet | None]:
    """Returns the choice among the blocks, and that of a short answer, as heavy as the page is."""
    evidence = rank(page.example, page.scores, decision).evidence
    sets = block_choices(page.example, evidence), option_choices(page.example, evidence)
    block, option = (one and replace(one, weight=page.of.weight) for one in sets)
    return block, option


main = command.main(fit, _options)
