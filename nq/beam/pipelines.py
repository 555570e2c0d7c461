"""The pipelines of ``nq preprocess`` and ``nq answer --runner``; both keep the order of the input.

    ReadQuestions -> steps of the job -> count -> encode -> results-*
                               `-> dead letters -> encode -> dead_letters-*

No element is sent to another worker before it is encoded. Workers write through Beam's file sinks,
which rename the file of a bundle when the bundle is complete: what a worker wrote before it died is
not among them, so that nothing is doubled and nothing is lost. Then this process merges the files.

Beam's runners tell the metrics of a pipeline when it has ended (Flink's job server, the local
runner), or copy the first values that they were asked for (``PortableMetrics``). For progress
workers write small files into a folder that all of them see; results do not depend on these.
"""

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nq import __version__, processor
from nq.beam.files import check_no_pattern, copy_file, match_files
from nq.beam.merge import check_shards, encode, merged
from nq.beam.runner import FileSystems, Finished, beam, execute, requested_workers
from nq.beam.score import Decide, ScoreWindows
from nq.beam.transforms import MakeWindows, ReadQuestions
from nq.errors import Error
from nq.formats.input_files import is_uri
from nq.inference.load import ScorerSpec
from nq.preprocess.prepared import Request
from nq.preprocess.shards import StoredExample
from nq.progress import new_bar
from nq.questions import Ids
from nq.records import DeadLetter

RESULTS = "results"
DEAD = "dead_letters"
PROGRESS = "progress"
WRITE_S = 1.0
POLL_S = 0.5
POLL_URI_S = 10.0
END_S = 2.0

AddSteps = Callable[[Any], tuple[Any, Any]]
"""Adds steps to the questions; returns the results and the dead letters, each with a ``source``."""


def run_in_order(
    questions: ReadQuestions,
    steps: AddSteps,
    options: Sequence[str],
    part: Path,
    shared: str,
    progress: Callable[[int, int], None],
) -> tuple[Finished, Iterator[Any]]:
    """Runs a pipeline to its end; returns its results and dead letters in the order of the input.

    Args:
        questions: its ``workers`` are the processes of the local runner, too.
        options: of Beam, with the runner; they win over the number of workers.
        part: an empty folder on this machine, which gets the results.
        shared: path or URI of an empty folder that every worker can write to; may be ``part``.
    """

    def build(pipeline: Any) -> None:
        results, dead_letters = steps(pipeline | "Read" >> questions)
        counted = results | "Count" >> beam.ParDo(CountExamples(folder))
        write("", RESULTS, counted)
        write("DeadLetters", DEAD, dead_letters)

    def write(label: str, name: str, elements: Any) -> None:
        encoded = elements | f"Encode{label}" >> beam.Map(_encode, __version__)
        sink = beam.io.WriteToTFRecord(FileSystems.join(shared, name))
        _ = encoded | f"Write{label}" >> sink

    folder = FileSystems.join(shared, PROGRESS)
    with reported(folder, progress, questions.limit or 0):
        finished = execute(build, questions.workers, options, part)
    paths = []
    for name in (RESULTS, DEAD):
        files = match_files(FileSystems.join(shared, f"{name}-*"))
        check_shards([file.rpartition("/")[2] for file in files])
        for file in files:
            path = part / file.rpartition("/")[2]
            if not path.exists():
                copy_file(file, str(path))
            paths.append(path)
    return finished, merged(paths)


class CountExamples(beam.DoFn):  # type: ignore[misc]
    """Passes elements on, and writes their number to a file in ``folder`` every ``WRITE_S`` s."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def setup(self) -> None:
        self.path = FileSystems.join(self.folder, uuid.uuid4().hex)
        self.count = 0
        self.written_s = time.monotonic()

    def process(self, element: Any) -> Iterator[Any]:
        yield element
        self.count += 1
        if time.monotonic() - self.written_s > WRITE_S:
            self.finish_bundle()

    def finish_bundle(self) -> None:
        with contextlib.suppress(Exception), FileSystems.create(self.path) as file:
            file.write(str(self.count).encode())
        self.written_s = time.monotonic()


def completed(folder: str) -> int:
    """Returns how many examples workers have completed, by their files in a folder."""
    total = 0
    for path in match_files(FileSystems.join(folder, "*")):
        # A file that is being written just now may be empty.
        with contextlib.suppress(Exception), FileSystems.open(path) as file:
            total += int(file.read())
    return total


@contextlib.contextmanager
def reported(folder: str, progress: Callable[[int, int], None], total: int) -> Iterator[None]:
    """Reports the progress in a folder of ``CountExamples`` from a thread while the block runs.

    ``progress`` receives the examples just completed, and how many there are, 0 if unknown.
    """
    ended = threading.Event()
    done = 0

    def report() -> None:
        nonlocal done
        with contextlib.suppress(Exception):  # the file system cannot be reached for a moment
            now = completed(folder)
            if now > done:
                examples = max(total, now) if total else 0
                progress(now - done, examples)
                done = now

    def poll() -> None:
        interval_s = POLL_URI_S if is_uri(folder) else POLL_S
        while not ended.wait(interval_s):
            report()

    thread = threading.Thread(target=poll, name="nq-beam-progress", daemon=True)
    thread.start()
    try:
        yield
        report()
    finally:
        ended.set()
        thread.join(END_S)


def _encode(element: Any, version: str) -> bytes:
    """Encodes an element; fails in a worker that has another version of nq."""
    if version != __version__:
        what = f"a worker has nq {__version__}, this machine {version}"
        raise Error(f"{what}: install the same version on both")
    return encode(element)


def preprocess(
    request: Request, part: Path, workers: int | None, options: Sequence[str]
) -> Iterator[StoredExample | DeadLetter]:
    """Yields what is stored of a request, in order, after all of it is in the folder ``part``.

    The options of Beam win over the number of ``workers``, by default one for each core.
    """
    check_no_pattern(part.parent)
    questions = request.questions
    workers = workers or requested_workers(options) or len(processor.cores())
    read = ReadQuestions(questions.files, questions.limit, workers, questions.pages)
    windows = MakeWindows(
        request.tokenizer.origin,
        request.windows,
        request.training,
        output="groups",
    )

    def steps(records: Any) -> tuple[Any, Any]:
        prepared = records | "Windows" >> windows
        return prepared.windows, prepared.dead_letters

    def progress(new: int, total: int) -> None:
        bar.update(new)

    with new_bar(desc="preprocess", unit=" examples") as bar:
        _, elements = run_in_order(read, steps, options, part, str(part), progress)
    ids = Ids()
    for one in elements:
        if isinstance(one, DeadLetter):
            yield one
        else:
            yield ids.repeated(one.source, one.example_id, one.question) or one


def answering(spec: ScorerSpec, staged: Mapping[Path, str], decide: Decide) -> AddSteps:
    """Returns the steps from questions to their answers; see ``ScoreWindows`` for ``staged``."""
    folder = spec.model.parts[0].folder
    tokenizer = staged.get(folder, folder)
    windows = MakeWindows(tokenizer, spec.model.windows, output="examples")

    def steps(records: Any) -> tuple[Any, Any]:
        prepared = records | "Windows" >> windows
        scored = prepared.windows | "Score" >> ScoreWindows(spec, staged=staged)
        return scored | "Decide" >> decide, prepared.dead_letters

    return steps
