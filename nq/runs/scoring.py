"""How a job is answered, and its answers in this process.

All windows are scored, continuing where an equal job was interrupted. Memory does not grow with the
input: a few examples are in memory at a time.
"""

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from nq import storage
from nq.beam.windows import by_workers
from nq.evaluation.answer_files import Answered, answer
from nq.formats.input_files import LOCAL, Files
from nq.inference.instances import InstancePool, warn_if_too_few_cores
from nq.inference.load import load_scorer
from nq.inference.profile import TENSORFLOW, without_gain
from nq.inference.scorer import Scorer, answers, score_examples
from nq.memo import Memo
from nq.model.runtime import import_tensorflow
from nq.preprocess.prepared import Request, Windows, open_windows
from nq.preprocess.shards import PREPARED
from nq.records import Example, Scores, Windowed
from nq.runs.folder import RunFolder
from nq.runs.job import Job
from nq.runs.measure import POSTPROCESS, READ, WAIT, Clock, Totals
from nq.runs.score_store import ScoreStore, StoringScorer
from nq.worker import WorkerDiedError

RunProgress = Callable[[int, int], None]
"""Receives the windows that have just been completed, and how many there are so far."""


class RunAnswers(ABC):
    """The answers to the questions of a job, which are computed when they are read."""

    memo: Memo | None = None
    """The scores that the run may keep; ``None`` if workers of Beam have them."""
    beam: Mapping[str, Any] | None = None
    """The job of a runner, as in ``Result``; complete when all answers are read."""
    advice: str = ""
    """Why the profile is not fast on this machine, and what is; or empty."""

    @abstractmethod
    def answers(self, table_rows: int) -> Iterator[Answered | bytes]:
        """Yields the answers in order, the first with a row of the table, and dead letters."""

    @abstractmethod
    def totals(self) -> Totals:
        """Returns what is computed so far."""

    @property
    def windows_bytes(self) -> int:
        """Bytes of the windows that runs share."""
        return 0


class Executor(ABC):
    """How a job is answered; ``labels`` are what the progress bar shows, and what it counts."""

    labels: tuple[str, str]

    @abstractmethod
    def files(self, job: Job) -> Files:
        """Returns what reads the files of a job, after the check of what it needs for that."""

    @abstractmethod
    def open_answers(
        self, job: Job, request: Request, folder: RunFolder, clock: Clock, progress: RunProgress
    ) -> contextlib.AbstractContextManager[RunAnswers]:
        """Opens the answers of a job, whose profile is chosen."""


class Scoring(RunAnswers):
    """The windows of a job, their scores and the answers.

    Scores that are not in the store are computed when they are needed for the first time, several
    examples at a time, and only then is progress reported; later ones are read from the store.
    """

    memo: Memo

    def __init__(
        self, job: Job, windows: Windows, scorer: StoringScorer, clock: Clock, progress: RunProgress
    ) -> None:
        self._decision = job.model.decision
        self._formats = job.formats
        self.advice = without_gain(job.profile, scorer.device)
        self.memo = scorer.store.memo
        self.windows = windows
        self._scorer = scorer
        self._rescored = self._reader_windows = 0
        self._clock = clock
        self._progress = progress
        self._lock = threading.Lock()
        self._is_complete = False

    def __iter__(self) -> Iterator[tuple[Example, Scores]]:
        for scored in score_examples(self._scorer, self._examples(), self._on_windows):
            yield scored.example, scored.scores
        self._is_complete = True

    def answers(self, table_rows: int) -> Iterator[Answered | bytes]:
        decided = answers(self._scorer, self._examples(), self._decision, self._on_windows)
        for number, (scored, ranked) in enumerate(decided):
            self._rescored += scored.rescored
            self._reader_windows += scored.reader_windows
            yield answer(scored.example, ranked, self._formats, number < table_rows)
        with self.windows.dead_letter_file.open("rb") as lines:
            yield from lines

    @property
    def windows_bytes(self) -> int:
        return storage.size(self.windows.folder, PREPARED)

    def _examples(self) -> Iterator[Windowed]:
        examples = iter(self.windows)
        while True:
            with self._clock(READ):
                one = next(examples, None)
            if one is None:
                return
            yield one

    def totals(self) -> Totals:
        made = self.windows
        counts = self.windows.counts
        scorer = self._scorer
        return Totals(
            windows=counts.windows,
            resumed_windows=scorer.resumed_windows,
            reader_windows=self._reader_windows,
            rescored=self._rescored,
            dead_letters=counts.dead_letters,
            truncated_pages=counts.truncated_pages,
            unread_blocks=counts.unread_blocks,
            prepare_s=0.0 if made.reused else made.seconds,
            devices={scorer.device},
            precisions={scorer.precision},
            counters=scorer.counters,
        )

    def _on_windows(self, n_windows: int) -> None:
        with self._lock:  # instances complete windows in several threads
            if not self._is_complete:
                self._progress(n_windows, self.windows.counts.windows)


class LocalExecutor(Executor):
    """Answers a job in this process, in which the packages of its profile must be installed."""

    labels = "predict", "windows"

    def files(self, job: Job) -> Files:
        return LOCAL

    @contextlib.contextmanager
    def open_answers(
        self, job: Job, request: Request, folder: RunFolder, clock: Clock, progress: RunProgress
    ) -> Iterator[Scoring]:
        """Loads the model while the windows are prepared, and opens the store of the scores.

        The times of the run are kept until the block ends.
        """
        shared = (job.output or job.root) / f"windows-{request.key}"
        preprocess = by_workers(job.compute.workers)
        with (
            open_windows(request, shared, preprocess, partial(clock, WAIT)) as made,
            _open_scorer(job, made) as scorer,
        ):
            store = ScoreStore(folder.work, job.scores(request))
            scoring = Scoring(job, made, StoringScorer(scorer, store, clock), clock, progress)
            with clock.kept(store.memo, scoring.totals):
                clock.enter(POSTPROCESS)
                yield scoring


@contextlib.contextmanager
def _open_scorer(job: Job, made: Windows) -> Iterator[Scorer]:
    """Loads the model of a job, in this process or in its instances, which end with the block."""
    threads = job.compute.threads
    spec = job.scorer.calibrated(lambda: (one.example for one in made))
    if job.instances is None:
        if threads is not None:
            warn_if_too_few_cores(1, threads)
        if spec.profile.changes.engine == TENSORFLOW:  # others may have a converted graph
            import_tensorflow(threads)
        yield load_scorer(spec)
        return
    try:
        with contextlib.closing(InstancePool(spec, job.instances, threads or 1)) as pool:
            yield pool
    except WorkerDiedError as error:
        advice = "run the same command again to resume, with fewer instances if memory was full"
        raise WorkerDiedError(f"{error}: {advice}") from error
