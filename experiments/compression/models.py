"""The model folders of ``experiments.compression``, made once, and the scores of their answers.

What needs TensorFlow runs in a process of its own, so that the threads, the memory and the settings
of one row do not reach the next one.
"""

import contextlib
import dataclasses
import math
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from experiments.compression import pruning
from experiments.compression.structure import parse_counts
from nq import storage
from nq.bundle import bundled_model
from nq.commands.main import console
from nq.config import DecisionConfig
from nq.errors import Error
from nq.evaluation import tuning
from nq.evaluation.evaluate import example_gold
from nq.evaluation.nq_eval import Gold
from nq.model.config import ModelConfig
from nq.model.folder import ModelFolder, save_settings
from nq.postprocess.decision import decide
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.questions import Questions
from nq.records import ExampleId, Prediction
from nq.runs.folder import FinishedRun
from nq.runs.job import Job
from nq.runs.run import run

RAW = "raw"
TUNED = "tuned"
RECOVERED = "recovered"
STATES = (RAW, TUNED, RECOVERED)
TINY = ModelConfig(
    hidden_size=16, num_hidden_layers=3, num_attention_heads=4, intermediate_size=128
)
"""With enough heads, FFN units and layers to prune some."""

T = TypeVar("T")


def made(folder: Path, make: Callable[[Path], object]) -> Path:
    """Returns a folder, which is made if it is not there; it is there only as a whole."""
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with storage.unfinished(folder.parent) as temporary:
            make(temporary / folder.name)
            (temporary / folder.name).rename(folder)
    return folder


def in_new_process(function: Callable[..., T], *args: object) -> T:
    """Returns the result of a function of a module, called in a process that ends then.

    Raises what the function raises, and an ``Error`` if the process was killed.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        try:
            return pool.submit(function, *args).result()
        except BrokenProcessPool as error:
            raise Error(
                f"the process of {function.__name__} was killed, probably out of memory: run the "
                "same command again to continue"
            ) from error


def train(argv: Sequence[str]) -> None:
    """Runs ``nq train``, which prints to stderr, in this process; an ``Error`` if it failed."""
    with contextlib.redirect_stdout(sys.stderr):
        code = console(["train", *argv])
    if code:
        raise Error(f"nq train {' '.join(argv)} ended with exit code {code}")


def tiny_model(folder: Path) -> Path:
    """Returns a tiny model of random weights, which is made if it is not there."""
    from experiments.peers.inputs import random_model

    rows = load_tokenizer(bundled_model()).vocab_size
    shape = dataclasses.replace(TINY, vocab_size=rows)
    return made(folder, lambda path: random_model(shape, path))


@dataclass(frozen=True)
class Models:
    """The folders of the study, all of them in ``folder``.

    Importance is measured on the files ``data``, on which pruned models also recover, with the
    options ``training`` of ``nq train``.
    """

    folder: Path
    original: Path
    data: tuple[str, ...]
    training: tuple[str, ...] = ()

    @property
    def source(self) -> Path:
        """A copy of the original, whose decision may be tuned."""
        return made(self.folder / "source", lambda path: ModelFolder(self.original).copy(path))

    def of(self, counts: str, state: str) -> Path:
        """Returns a model folder, which is made if it is not there.

        The whole model has no ``counts`` to prune to and no ``state``.
        """
        if not counts:
            return self.source

        def make(path: Path) -> None:
            if state == RAW:
                kept = parse_counts(counts)
                in_new_process(pruning.prune, self.source, path, kept, self.data)
            elif state == TUNED:
                ModelFolder(self.of(counts, RAW)).copy(path)
            else:
                ModelFolder(self._recovered(counts)).copy(path)

        return made(self.folder / f"{counts}-{state}", make)

    def _recovered(self, counts: str) -> Path:
        """Trains a pruned model on the data and the probabilities of the original."""
        work = self.folder / f"{counts}-training"
        options = [
            text
            for name, value in ModelFolder(self.source).settings.windows.to_dict().items()
            if value != ""
            for text in (f"--{name.replace('_', '-')}", value)
        ]
        argv = [
            "--data",
            *self.data,
            "--init",
            self.of(counts, RAW),
            "--teacher",
            self.source,
            "--output",
            work,
            "--no-track",
            *options,
            *self.training,
        ]
        in_new_process(train, [str(text) for text in argv])
        return work


def tune(finished: FinishedRun, folder: Path) -> None:
    """Fits a decision to the even half of a run, and writes it into a model folder."""
    settings = ModelFolder(folder).settings
    plain = DecisionConfig(max_answer_length=settings.decision.max_answer_length)
    tuned = tuning.tune_decision(finished, plain)
    save_settings(folder, dataclasses.replace(settings, decision=tuned.decision))


def odd_half(
    finished: FinishedRun, decision: DecisionConfig
) -> tuple[Gold, dict[ExampleId, Prediction]]:
    """Returns gold and predictions of annotated questions that no decision was fitted to."""
    gold: Gold = {}
    predictions: dict[ExampleId, Prediction] = {}
    for example, scores in finished:
        if example.annotations and tuning.fold_of(example.example_id) is None:
            prediction = decide(example, scores, decision).prediction
            gold[example.example_id] = example_gold(example)
            predictions[example.example_id] = prediction
    return gold, predictions


def run_once(job: Job) -> Path:
    """Returns the folder of a run with scores, which is run only if there is no whole one.

    The job has no ``output``, so that its folder is named by all that its results depend on.
    """
    with Questions.open(job.files, job.pages, job.limit) as questions:
        folder = job.folder(job.request(questions))
    with contextlib.suppress(Error, OSError, ValueError):
        if FinishedRun(folder).scores is not None:
            return folder
    return run(job).folder


def prunings(heads: int, inner: int, layers: int) -> list[str]:
    """Returns what is pruned by default, each as ``parse_counts`` has it.

    The whole model has ``heads``, ``inner`` units of the FFN, and ``layers``.

    >>> prunings(12, 1536, 6)[:6]
    ['ffn=1152', 'ffn=768', 'heads=9', 'heads=6', 'layers=5', 'layers=4']
    >>> prunings(12, 1536, 6)[6:]
    ['heads=9,ffn=1152', 'layers=5,ffn=1152', 'heads=9,ffn=1152,layers=5']
    """
    wide, narrow = (64 * max(1, math.floor(share * inner / 64)) for share in (0.75, 0.5))
    most = max(1, heads * 3 // 4)
    half = max(1, heads // 2)
    high = max(1, layers - 1)
    low = max(1, layers - 2)
    singles = [f"ffn={wide}", f"ffn={narrow}", f"heads={most}", f"heads={half}"]
    singles += [f"layers={high}", f"layers={low}"]
    mixtures = [f"heads={most},ffn={wide}", f"layers={high},ffn={wide}"]
    return [*singles, *mixtures, f"heads={most},ffn={wide},layers={high}"]
