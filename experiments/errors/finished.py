"""Reads the folder of a finished run, of earlier versions too, and its examples as cases."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from experiments.errors.losses import Case, StageOutputs, judge, judgments
from experiments.errors.traits import traits
from nq.errors import Error
from nq.evaluation import labels
from nq.formats import inputs
from nq.postprocess.spans import pairs
from nq.preprocess.contexts import contexts
from nq.preprocess.features import features
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer, tokenizer_digest
from nq.records import Example, ExampleId, ExampleKey, WindowScores
from nq.runs.job import Job
from nq.runs.result import DEAD_LETTERS, JOB, KEPT_SCORES, METRICS, PREDICTIONS, UNFINISHED_SCORES
from nq.runs.score_store import ScoreStore
from nq.runs.scoring import read_request

UNLIMITED = 1 << 30


@dataclass(frozen=True)
class FinishedRun:
    """A run that has ended.

    Args:
        folder: of the run.
        job: its description; its files and its model exist and have not changed.
        tokenizer: of the model.
        predictions: by example id.
        scores: of the windows; ``None`` if they were not kept.
        run_id: of the MLflow run; ``None`` if there is none.
    """

    folder: Path
    job: Job
    tokenizer: Tokenizer
    predictions: dict[ExampleId, labels.Label]
    scores: ScoreStore | None
    run_id: str | None

    def examples(self) -> Iterator[tuple[ExampleKey, Example]]:
        """Yields the examples of the run in order, each with its file number and line.

        Raises:
            Error: an example has no prediction.
        """
        seen: set[ExampleId] = set()
        dead_letters = self._dead_letters()
        for request in self.job.requests():
            for source, example in read_request(request):
                if example.example_id in seen:
                    continue
                if example.example_id not in self.predictions:
                    if (Path(source.path).name, source.line) in dead_letters:
                        continue  # it has too many windows
                    raise Error(
                        f"{self.folder / PREDICTIONS} has no example {example.example_id} of "
                        f"{source.path}, line {source.line}: answer the questions again"
                    )
                seen.add(example.example_id)
                yield (source.file_index, source.line), example

    def _dead_letters(self) -> set[tuple[str, int]]:
        """Returns name of the file and line of each record that was not used."""
        path = self.folder / DEAD_LETTERS
        lines = path.read_bytes().splitlines() if path.is_file() else []
        letters = map(orjson.loads, lines)
        return {(Path(letter["file"]).name, letter["line"]) for letter in letters}

    def extra_field(self, name: str) -> dict[ExampleKey, Any]:
        """Returns a field of the records that the input formats do not have.

        Args:
            name: of the field.

        Returns:
            Its values by file number and line, for lines of JSON that have it.
        """
        values: dict[ExampleKey, Any] = {}
        quoted = orjson.dumps(name)
        for index, path in enumerate(self.job.files):
            for source, line in inputs.read_lines(path, index, limit=self.job.limit):
                if isinstance(line, bytes) and quoted in line:
                    with contextlib.suppress(ValueError, AttributeError):  # a dead letter
                        values[index, source.line] = orjson.loads(line).get(name)
        return values


def read_run(
    folder: Path, files: list[str] | None = None, model: Path | None = None
) -> FinishedRun:
    """Reads the folder of a finished run.

    Args:
        folder: written by ``nq answer``.
        files: the data files, if they were moved.
        model: the model folder, if it was moved.

    Raises:
        Error: the folder has no finished run, or the data or the tokenizer have changed.
    """
    description = _read_json(folder, JOB)
    try:
        job = Job.from_dict(description["job"])
        request = description["request"]
        digests, tokenizer_sha256 = [i["sha256"] for i in request["inputs"]], request["tokenizer"]
    except (LookupError, TypeError, ValueError) as error:
        raise Error(
            f"{folder / JOB} is of another version of nq ({error}): answer the questions again"
        ) from error
    job = replace(job, files=tuple(files or job.files), model=model or job.model)
    _check_files(job, digests)
    if not job.model.is_dir():
        raise Error(f"{job.model} does not exist: give the new folder of the model with --model")
    tokenizer = load_tokenizer(job.model, job.windows.compat)
    if tokenizer_digest(tokenizer) != tokenizer_sha256:
        raise Error(
            f"the tokenizer in {job.model} is not the one of the run: give the run's model with "
            "--model"
        )
    scores = folder / KEPT_SCORES
    return FinishedRun(
        folder,
        job,
        tokenizer,
        labels.read_predictions(folder / PREDICTIONS),
        ScoreStore(scores) if scores.is_dir() else None,
        _read_json(folder, METRICS).get("run_id"),
    )


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    if not folder.is_dir():
        raise Error(f"{folder} is not a folder: give one that nq answer wrote")
    if not (folder / name).is_file():
        if (folder / UNFINISHED_SCORES).is_dir():
            raise Error(
                f"the run in {folder} is not finished: give its nq answer command again to resume"
            )
        raise Error(
            f"{folder} has no {name}, so it is not a run of nq answer, or one of an older version: "
            "answer the questions again with --keep-scores"
        )
    try:
        values = orjson.loads((folder / name).read_bytes())
    except orjson.JSONDecodeError as error:
        raise Error(f"{folder / name} is damaged ({error}): answer the questions again") from error
    if not isinstance(values, dict):
        raise Error(f"{folder / name} has no JSON object: answer the questions again")
    return values


def _check_files(job: Job, digests: list[str]) -> None:
    if len(job.files) != len(digests):
        raise Error(f"the run read {len(digests)} data files, --data names {len(job.files)}")
    for path, digest in zip(job.files, digests, strict=True):
        if not Path(path).is_file():
            raise Error(f"{path} does not exist: give the new place of the data with --data")
        if inputs.sha256(path) != digest:
            raise Error(
                f"{path} is not the file that the run read, its content differs: give the run's "
                "data with --data, or answer the questions again"
            )


def cases(run: FinishedRun, progress: Callable[[int, int], None]) -> Iterator[Case]:
    """Yields every annotated example of a run as a case.

    Args:
        run: a finished run.
        progress: receives the examples that have just been completed, and how many there are.

    Raises:
        Error: an example has no prediction, or no scores although scores were kept.
    """
    sources = run.extra_field("source")
    for key, example in run.examples():
        if example.annotations:
            scores = None if run.scores is None else run.scores[key]
            yield case(example, run, scores, sources.get(key))
        progress(1, len(run.predictions))


def case(example: Example, run: FinishedRun, scores: WindowScores | None, source: Any) -> Case:
    """Returns one annotated example as a case; ``source`` counts only if it is a text."""
    config, label = run.job.windows, run.predictions[example.example_id]
    all_contexts = contexts(example, replace(config, max_contexts=UNLIMITED))
    read = all_contexts[: config.max_contexts]
    token_map = features(example, run.tokenizer, config).token_map
    stages = StageOutputs(read, token_map, pairs(scores) if scores is not None else None)
    long, short = judge(example, label)
    if not isinstance(source, str):
        source = None
    return Case(
        example.example_id,
        example.question,
        traits(example, long.has_gold, short.has_gold, all_contexts, len(read), source),
        *judgments(example, label, stages),
    )
