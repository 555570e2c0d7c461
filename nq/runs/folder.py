"""The folder of a run: while it is written, and when the run has ended.

predictions.json, nbest.jsonl …  the answers, in the formats of the run
skipped.jsonl                    bad records: file, line, reason, excerpt
metrics.json                     counts, times and metrics, see ``nq.runs.result``
job.json                         the job, digests of what it read and wrote; written last
report.html, compare.html        the pages of ``nq report``
scores/                          the scores of all windows, if they are kept
unfinished/                      scores and times of a run that has not ended
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

import orjson

from nq import storage
from nq.errors import DamagedError, Error
from nq.evaluation.answer_files import PREDICTIONS, Answered, AnswerRow, write_answers
from nq.evaluation.evaluate import Evaluation
from nq.evaluation.official import read_predictions
from nq.formats import outputs
from nq.formats.own_data import list_pages
from nq.memo import Memo
from nq.preprocess.tokenizers.base import Tokenizer
from nq.questions import Questions
from nq.records import Example, Scores, Source
from nq.runs.job import Job
from nq.runs.score_store import ScoreStore
from nq.storage import DEAD_LETTERS, WORK

METRICS = "metrics.json"
JOB = "job.json"
KEPT_SCORES = "scores"
REPORT = "report.html"
COMPARISON_PAGE = "compare.html"
_FILES = (
    *(PREDICTIONS, METRICS, JOB, REPORT, COMPARISON_PAGE, DEAD_LETTERS),
    *(one.file for one in outputs.FORMATS.values()),
)
RUN = storage.Kind(
    name="run",
    what="a run of nq answer",
    files="|".join(
        (*map(re.escape, _FILES), r"[0-9a-f]{12}\.mlflow_run", rf"(?:{WORK}|{KEPT_SCORES})/.+")
    ),
    folders=rf"(?:{WORK}|{KEPT_SCORES})(?:/.+)?",
)


def check_output(job: Job) -> None:
    """Checks that the run of a job may write its output; reads no file and changes nothing."""
    if job.output is None:
        storage.check_writable(job.root)
    else:
        storage.check_folder(job.output, RUN, job.sources)


class RunFolder:
    """A folder of a run.

    Args:
        description: the job with the digests of what it reads.
        formats: those in which answers are written, besides ``predictions.json``.
    """

    def __init__(
        self, path: Path, description: Mapping[str, Any], formats: Sequence[str] = ()
    ) -> None:
        self.path = path
        self.description = description
        self.formats = formats

    @classmethod
    def of(cls, job: Job, questions: Questions) -> "RunFolder":
        """Returns the folder in which a job answers questions, which may not be there yet."""
        request = job.request(questions)
        read = {"job": job.to_dict(), "request": request.description, "models": job.model.key}
        return RunFolder(job.folder(request), read, job.formats)

    @property
    def work(self) -> Path:
        """The folder of what a run computes until it has ended."""
        return self.path / WORK

    @property
    def mlflow_file(self) -> Path:
        """The file with the id of the MLflow run, which only an equal unfinished job continues."""
        return self.path / f"{storage.digest_json(self.description)[:12]}.mlflow_run"

    def check_free(self) -> None:
        """Checks that the folder has no run of another job, and no unfinished one."""
        if self.work.is_dir():
            problem = f"{self.path} has an unfinished run without --runner"
            raise Error(f"{problem}: give another --output")
        try:
            found = storage.read_json(self.path / JOB)
        except FileNotFoundError:
            return
        except DamagedError as error:
            raise Error(f"{error}: give another --output") from error
        if any(found.get(name) != value for name, value in self.description.items()):
            problem = f"{self.path} has the finished run of another job"
            raise Error(f"{problem}: give another --output")

    def write(self, answers: Iterable[Answered | bytes]) -> tuple[Evaluation, list[AnswerRow]]:
        """Writes the answers as ``write_answers`` does, and the dead letters, lines among them.

        The mark of an earlier finished run, ``job.json``, is removed when the first answer is
        known.
        """
        with storage.atomic_write(self.path / DEAD_LETTERS) as dead_letters:

            def good() -> Iterator[Answered]:
                for one in answers:
                    if isinstance(one, Answered):
                        yield one
                    else:
                        dead_letters.write(one)

            rest = good()
            first = list(islice(rest, 1))
            for name in (JOB, REPORT):
                (self.path / name).unlink(missing_ok=True)
            return write_answers(self.path, chain(first, rest), self.formats)

    def finish(self, values: Mapping[str, Any], scores: Memo | None, keep: bool) -> None:
        """Writes the metrics, and ``job.json`` as the last file; keeps the scores on request."""
        Memo(self.path / KEPT_SCORES).clear()
        with storage.atomic_write(self.path / METRICS) as file:
            file.write(orjson.dumps(values, option=orjson.OPT_INDENT_2) + b"\n")
        digests = {one.name: storage.sha256(one) for one in self.files}
        mark = {**self.description, "files": digests}
        if values.get("beam"):
            mark["beam"] = values["beam"]
        storage.write_json(self.path / JOB, mark)
        if scores is not None:  # not before, so that no interruption loses scores
            if keep:
                scores.move(self.path / KEPT_SCORES)
            scores.clear()

    @property
    def files(self) -> list[Path]:
        """The files that tell the result of a run, without ``job.json``."""
        others = (outputs.FORMATS[name].file for name in self.formats)
        return [self.path / name for name in (PREDICTIONS, METRICS, DEAD_LETTERS, *others)]


def last_run(root: Path = Path("runs")) -> Path:
    """Returns the folder of the run in ``root`` that has ended last; ``Error`` if there is none."""
    marks = sorted(root.glob(f"*/{JOB}"), key=lambda mark: mark.stat().st_mtime)
    if not marks:
        raise Error(f"there is no finished run in {root}: give the folder of one")
    return marks[-1].parent


class FinishedRun(RunFolder):
    """A run that has ended, whose data and model may have been moved.

    Args:
        files, pages, model: the new places of the data, the pages and the model.
        questions: those of the run, where they are open already.
        check: whether the data must be there unchanged; the model may always be gone.

    Attributes:
        questions: what it has answered.
        written: SHA-256 of the files that the run wrote, by name.
        predictions: in the order of the questions.

    Raises:
        Error: there is no finished run in the folder, or its data have changed.
        ValueError: its predictions are damaged.
    """

    def __init__(
        self,
        path: Path,
        files: Iterable[str] = (),
        model: Path | None = None,
        check: bool = True,
        pages: str | Path | None = None,
        questions: Questions | None = None,
    ) -> None:
        if not path.is_dir():
            raise Error(f"{path} is not a folder: give one that nq answer wrote")
        if not (path / JOB).is_file() and (path / WORK).is_dir():
            raise Error(f"the run in {path} is not finished: resume it by its nq answer command")
        for name in (JOB, METRICS, PREDICTIONS):
            if not (path / name).is_file():
                raise Error(f"{path} has no {name}, so it is not a run of nq answer: give one")
        try:
            super().__init__(path, storage.read_json(path / JOB))
        except DamagedError as error:
            raise Error(f"{error}: answer the questions again") from error
        self.written: dict[str, str] = self.description["files"]
        for name, digest in self.written.items():
            if (path / name).is_file() and storage.sha256(path / name) != digest:
                raise Error(f"{path / name} is damaged (SHA-256): answer the questions again")
        self.read: dict[str, Any] = self.description["request"]
        self.job = Job.from_dict(self.description["job"])
        own = self.job.model
        own = own.moved(model) if model else own
        self.job = replace(self.job, files=tuple(files or self.job.files), model=own)
        self._pages = pages
        if questions is not None:
            self.questions = questions
        self.predictions = read_predictions(path / PREDICTIONS)
        self.metrics: dict[str, Any] = orjson.loads((path / METRICS).read_bytes())
        if check:
            self.questions.check_same(self.read)

    @cached_property
    def questions(self) -> Questions:
        """The questions of the run; an ``Error`` says which file or folder has moved."""
        for path in self.job.files:
            if not Path(path).is_file():
                raise Error(f"{path} does not exist: give the new place of the data with --data")
        pages = None
        described = self.description["job"]
        if folder := self._pages or described.get("pages"):
            if not Path(folder).is_dir():
                raise Error(f"{folder} does not exist: give the folder of the pages with --pages")
            pages = list_pages(folder, described.get("page_column"))
        return Questions(self.job.files, pages, self.job.limit)

    def has_read(self, questions: Questions) -> bool:
        """Returns whether the run read the same files and pages; names and limit may differ."""
        mine, theirs = (
            ([file["sha256"] for file in key["inputs"]], key.get("pages"))
            for key in (self.read, questions.key)
        )
        return mine == theirs

    @cached_property
    def scores(self) -> ScoreStore | None:
        """The scores of the windows; ``None`` if they were not kept."""
        folder = self.path / KEPT_SCORES
        return ScoreStore(folder) if folder.is_dir() else None

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model; an ``Error`` if it is gone, or not that of the run."""
        first = self.job.model.parts[0]
        if not first.folder.is_dir():
            what = f"{first.folder} does not exist"
            raise Error(f"{what}: give the new folder of the model with --model")
        if first.tokenizer.digest != self.read["tokenizer"]:
            what = f"the tokenizer in {first.folder} is not the run's"
            raise Error(f"{what}: give its model with --model")
        return first.tokenizer

    def sources(self) -> Iterator[tuple[Source, Example]]:
        """Yields the examples that the run has answered, in order, each with its origin."""
        with (self.path / DEAD_LETTERS).open("rb") as lines:
            bad = {(letter["file"], letter["line"]) for letter in map(orjson.loads, lines)}
        for source, item in self.questions:
            if not isinstance(item, Example) or (source.path, source.line) in bad:
                continue
            if item.example_id not in self.predictions:
                missing = f"{source.path}, line {source.line}"
                raise Error(f"{self.path} has no answer to {missing}: answer it again")
            yield source, item

    def __iter__(self) -> Iterator[tuple[Example, Scores]]:
        """Yields the examples with their scores; ``Error`` if these were not kept."""
        if self.scores is None:
            raise Error(f"{self.path} has no scores: answer the questions with --keep-scores")
        for source, example in self.sources():
            yield example, self.scores.scores(source.key)

    def n_best_lines(self) -> Iterator[dict[str, Any]]:
        """Yields the lines of ``nbest.jsonl``; none if the run did not write such a file."""
        path = self.path / outputs.NBEST_FILE
        if path.name in self.written and path.is_file():
            with path.open("rb") as file:
                yield from map(orjson.loads, file)
