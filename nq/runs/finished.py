"""Reads the folder of a finished run."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import orjson

from nq import storage
from nq.beam.prepare import prepare
from nq.errors import Error
from nq.evaluation import labels
from nq.formats import outputs
from nq.preprocess.request import Request
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer, tokenizer_digest
from nq.records import Example, ExampleId, ExampleKey, Source
from nq.runs.chunks import Chunks
from nq.runs.job import Job
from nq.runs.measure import Clock
from nq.runs.plan import windows_folder
from nq.runs.result import JOB, KEPT_SCORES, METRICS, PREDICTIONS
from nq.runs.score_store import ScoreStore


def last_run(root: Path = Path("runs")) -> Path:
    """Returns the folder of the run in ``root`` that has ended last; ``Error`` if there is none."""
    marks = sorted(root.glob(f"*/{JOB}"), key=lambda mark: mark.stat().st_mtime)
    if not marks:
        raise Error(f"there is no finished run in {root}: give the folder of one")
    return marks[-1].parent


class FinishedRun:
    """A run that has ended, whose data ``files`` and ``model`` may have been moved.

    With ``check`` the data must be there unchanged; the model may always be gone. ``digests`` are
    the SHA-256 of the data files, ``written`` those of the files that the run wrote, by name. The
    predictions have the order of the examples.

    Raises:
        Error: there is no finished run in the folder, or its data have changed.
        ValueError: its predictions are damaged.
    """

    def __init__(
        self, folder: Path, files: Sequence[str] = (), model: Path | None = None, check: bool = True
    ) -> None:
        if not folder.is_dir():
            raise Error(f"{folder} is not a folder: give one that nq answer wrote")
        if not (folder / JOB).is_file() and (folder / storage.WORK).is_dir():
            raise Error(f"the run in {folder} is not finished: resume it by its nq answer command")
        for name in (JOB, METRICS, PREDICTIONS):
            if not (folder / name).is_file():
                raise Error(f"{folder} has no {name}, so it is not a run of nq answer: give one")
        description = storage.read_json(folder / JOB)
        for name, digest in description["files"].items():
            if (folder / name).is_file() and storage.sha256(folder / name) != digest:
                raise Error(f"{folder / name} is damaged (SHA-256): answer the questions again")
        job, request = Job.from_dict(description["job"]), description["request"]
        spec = replace(job.model, folder=model or job.model.folder)
        self.folder = folder
        self.job = replace(job, files=tuple(files or job.files), model=spec)
        self.digests = tuple(source["sha256"] for source in request["inputs"])
        self.written: dict[str, str] = description["files"]
        self.predictions = labels.read_predictions(folder / PREDICTIONS)
        self.metrics: dict[str, Any] = orjson.loads((folder / METRICS).read_bytes())
        self._tokenizer_sha256 = request["tokenizer"]
        if check:
            self.check_data()

    @cached_property
    def scores(self) -> ScoreStore | None:
        """The scores of the windows; ``None`` if they were not kept."""
        folder = self.folder / KEPT_SCORES
        return ScoreStore(folder) if folder.is_dir() else None

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model; an ``Error`` if it is gone, or not that of the run."""
        model = self.job.model.folder
        if not model.is_dir():
            raise Error(f"{model} does not exist: give the new folder of the model with --model")
        tokenizer = load_tokenizer(model, self.job.model.windows.compat)
        if tokenizer_digest(tokenizer) != self._tokenizer_sha256:
            raise Error(f"the tokenizer in {model} is not the run's: give its model with --model")
        return tokenizer

    def check_data(self) -> None:
        """Raises an ``Error`` if a data file is gone or is not the one that the run read."""
        files = self.job.files
        if len(files) != len(self.digests):
            raise Error(f"the run read {len(self.digests)} data files, --data names {len(files)}")
        for path, digest in zip(files, self.digests, strict=True):
            if not Path(path).is_file():
                raise Error(f"{path} does not exist: give the new place of the data with --data")
            if storage.sha256(path) != digest:
                raise Error(f"{path} is not the file that the run read: give that one with --data")

    def examples(self) -> Iterator[tuple[ExampleKey, Example]]:
        """Yields the examples of the run in order, each with file number and line."""
        return (((source.file_index, source.line), example) for source, example in self.sources())

    def sources(self) -> Iterator[tuple[Source, Example]]:
        """Yields the examples of the run in order, each with its origin."""
        seen, work = set[ExampleId](), list[tuple[Request, Path]]()
        for request in self.job.requests():
            own, shared = (windows_folder(f, request) for f in (self.folder, self.folder.parent))
            work.append((request, shared if shared.is_dir() else own))
        for one in Chunks((prepare(*one) for one in work), work, None, Clock()):
            source, example = one.source, one.example
            if example.example_id in seen:
                continue
            if example.example_id not in self.predictions:
                missing = f"{source.path}, line {source.line}"
                raise Error(f"{self.folder} has no answer to {missing}: answer it again")
            seen.add(example.example_id)
            yield source, example

    def n_best_lines(self) -> Iterator[dict[str, Any]]:
        """Yields the lines of ``nbest.jsonl``; none if the run did not write such a file."""
        path = self.folder / outputs.NBEST_FILE
        if path.name in self.written and path.is_file():
            with path.open("rb") as file:
                yield from map(orjson.loads, file)
