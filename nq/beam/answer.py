"""The whole line as one pipeline: questions -> windows -> scores -> answers in files.

ReadQuestions -> MakeWindows -> ScoreWindows -> Decide -> CountAnswers -> encode -> answers-*
                      `-> dead letters -> encode -> dead-*

No element is sent to another worker before it is encoded. Workers write through Beam's file sinks,
which rename the file of a bundle when the bundle is complete: what a worker wrote before it died is
not among them, so that nothing is doubled and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import apache_beam as beam

from nq import __version__
from nq.beam.decide import Decide
from nq.beam.elements import Decided
from nq.beam.files import absolute, copy_file, join, match_files
from nq.beam.merge import check_shards, encode
from nq.beam.progress import CountAnswers, Progress, reported
from nq.beam.records import encode_dead_letter, encode_decided
from nq.beam.runner import Finished, execute
from nq.beam.score import ScoreWindows
from nq.beam.transforms import MakeWindows, ReadQuestions
from nq.errors import Error
from nq.formats.input_files import is_uri
from nq.formats.questions import PageFolder
from nq.inference.load import ScorerSpec

ANSWERS, DEAD, PROGRESS = "answers", "dead", "progress"
SINKS = (ANSWERS, DEAD)


@dataclass(frozen=True)
class AnswerJob:
    """What a pipeline answers, and how.

    Args:
        files: paths or URIs of the questions.
        spec: of the scorer.
        limit: answer only so many records, the first ones.
        pages: the pages that questions name.
        formats: names of output formats besides the official one.
        table_rows: see ``Decide``.
        staged: see ``ScoreWindows``.
        readers: workers among which few files are shared.
    """

    files: Sequence[str]
    spec: ScorerSpec
    limit: int | None = None
    pages: PageFolder | None = None
    formats: tuple[str, ...] = ()
    table_rows: int = 0
    staged: Mapping[Path, str] = field(default_factory=dict)
    readers: int = 1


def run_answers(
    job: AnswerJob, options: Sequence[str], part: Path, shared: str, progress: Progress
) -> tuple[Finished, list[Path]]:
    """Runs the pipeline of a job; returns what it did, and the files of its workers.

    Args:
        job: what to answer.
        options: of Beam, with the runner.
        part: an empty folder on this machine.
        shared: path or URI of an empty folder that every worker can write to; may be ``part``.
        progress: receives the answered examples.

    Raises:
        Error: the job failed or was cancelled; names the step and the cause.
        ValueError: Beam refuses an option.
        DamagedError: a file of a worker is missing.
    """

    def build(pipeline: Any) -> None:
        made = (
            pipeline
            | "Read"
            >> ReadQuestions(
                list(map(absolute, job.files)), job.limit, job.readers, pages=_pages(job)
            )
            | "Windows" >> MakeWindows(_tokenizer(job), job.spec.model.windows, output="examples")
        )
        _ = (
            made.windows
            | "Score" >> ScoreWindows(job.spec, staged=job.staged)
            | "Decide" >> Decide(job.spec.model.decision, job.formats, job.table_rows)
            | "Count" >> beam.ParDo(CountAnswers(join(shared, PROGRESS)))
            | "Encode" >> beam.ParDo(_Encode(__version__))
            | "Write" >> beam.io.WriteToTFRecord(join(shared, ANSWERS))
        )
        _ = (
            made.dead_letters
            | "EncodeDead" >> beam.Map(_encode_dead_letter)
            | "WriteDead" >> beam.io.WriteToTFRecord(join(shared, DEAD))
        )

    with reported(join(shared, PROGRESS), progress, job.limit or 0):
        finished = execute(build, job.readers, options, part)
    return finished, fetch(shared, part)


def _pages(job: AnswerJob) -> PageFolder | None:
    pages = job.pages
    if pages is None:
        return None
    files = tuple(map(absolute, pages.files))
    return replace(pages, folder=absolute(pages.folder), files=files)


def _tokenizer(job: AnswerJob) -> str:
    folder = job.spec.model.folder
    return job.staged.get(folder, str(folder))


class _Encode(beam.DoFn):  # type: ignore[misc]
    """Encodes answers; fails in a worker that has another version of nq."""

    def __init__(self, version: str) -> None:
        self.version = version

    def setup(self) -> None:
        if self.version != __version__:
            raise Error(
                f"a worker has nq {__version__}, this machine has {self.version}: install the same "
                "version on both"
            )

    def process(self, decided: Decided) -> Any:
        yield encode(decided.source, encode_decided(decided))


def _encode_dead_letter(letter: Any) -> bytes:
    return encode(letter.source, encode_dead_letter(letter))


def fetch(shared: str, part: Path) -> list[Path]:
    """Returns the files of the workers, copied to ``part`` if they are elsewhere.

    Raises:
        DamagedError: one is missing.
        OSError: one cannot be copied.
    """
    paths = []
    for sink in SINKS:
        found = match_files(join(shared, f"{sink}-*"))
        check_shards([name.rpartition("/")[2] for name in found])
        for name in found:
            target = part / name.rpartition("/")[2]
            if is_uri(name) or Path(name).resolve() != target.resolve():
                copy_file(name, str(target))
            paths.append(target)
    return paths
