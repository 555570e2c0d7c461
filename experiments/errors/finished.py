"""A finished run's folder, and its examples as cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from experiments.errors.losses import Case, Kept, judge, verdicts
from experiments.errors.traits import traits
from nq.errors import Error
from nq.evaluation import labels
from nq.formats import inputs
from nq.formats.fields import RecordError
from nq.postprocess.spans import pairs
from nq.preprocess.contexts import contexts
from nq.preprocess.features import features
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer, tokenizer_digest
from nq.records import Example, WindowScores
from nq.runs.examples import answered_examples
from nq.runs.job import JOB, METRICS, PREDICTIONS, RESULTS, SCORES, Job
from nq.runs.score_store import Results, shards

Place = tuple[int, int]
"""Input file and line."""

EVERY = 1 << 30


@dataclass(frozen=True)
class Finished:
    """A run that has ended.

    Args:
        folder: where it lies.
        job: what was asked; its files and its model are there and as they were.
        tokenizer: of the model.
        predictions: by example id.
        scores: of the windows; ``None`` where they were not kept.
        run_id: in the tracking store; ``None`` for a run that was not tracked.
    """

    folder: Path
    job: Job
    tokenizer: Tokenizer
    predictions: dict[labels.ExampleId, labels.Label]
    scores: Results | None
    run_id: str | None


def read_finished(
    folder: Path, files: list[str] | None = None, model: Path | None = None
) -> Finished:
    """Reads a run's folder.

    Args:
        folder: that ``nq answer`` wrote.
        files: where the data files lie now, if they were moved.
        model: where the model folder lies now, if it was moved.

    Raises:
        Error: the folder is no run, half a run, or what it was made from has changed.
    """
    asked = _read_json(folder, JOB)
    try:
        job = Job.from_dict(asked["job"])
        described = asked["request"]
        digests, tokenizer_was = [i["sha256"] for i in described["inputs"]], described["tokenizer"]
    except (LookupError, TypeError, ValueError) as error:
        raise Error(
            f"{folder / JOB} is of another version of nq ({error}); answer the questions again"
        ) from error
    job = replace(job, files=tuple(files or job.files), model=model or job.model)
    _check_files(job, digests)
    if not job.model.is_dir():
        raise Error(f"{job.model} is there no more; give the model's new folder with --model")
    tokenizer = load_tokenizer(job.model, job.windows.compat)
    if tokenizer_digest(tokenizer) != tokenizer_was:
        raise Error(
            f"the tokenizer in {job.model} is not the one of the run; give the run's with --model"
        )
    scores, metrics = folder / SCORES, _read_json(folder, METRICS)
    return Finished(
        folder,
        job,
        tokenizer,
        labels.read_predictions(folder / PREDICTIONS),
        Results(scores, shards(scores)) if scores.is_dir() else None,
        metrics.get("run_id"),
    )


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    if not folder.is_dir():
        raise Error(f"{folder} is no folder; give one that nq answer wrote")
    if not (folder / name).is_file():
        if (folder / RESULTS).is_dir():
            raise Error(
                f"the run in {folder} has not ended; give its nq answer command again, "
                "it goes on where it stopped"
            )
        raise Error(
            f"{folder} holds no {name}: it is no run of nq answer, or one of an older version; "
            "answer the questions again with --keep-scores"
        )
    try:
        found = orjson.loads((folder / name).read_bytes())
    except orjson.JSONDecodeError as error:
        raise Error(f"{folder / name} is broken ({error}); answer the questions again") from error
    if not isinstance(found, dict):
        raise Error(f"{folder / name} holds no JSON object; answer the questions again")
    return found


def _check_files(job: Job, digests: list[str]) -> None:
    if len(job.files) != len(digests):
        raise Error(f"the run read {len(digests)} data files, --data names {len(job.files)}")
    for path, digest in zip(job.files, digests, strict=True):
        if not Path(path).is_file():
            raise Error(f"{path} is there no more; give the data's new place with --data")
        if inputs.sha256(path) != digest:
            raise Error(
                f"{path} is not what the run read: its content is another; give the run's data "
                "with --data, or answer the questions again"
            )


def cases(run: Finished, on_example: Callable[[int, int], None]) -> Iterator[Case]:
    """Every annotated example of the run as a case.

    Args:
        run: whose examples.
        on_example: told of each example that is done, and how many there are.

    Raises:
        Error: the predictions are not those of the data.
    """
    found_sources = sources(run.job)
    for source, example in answered_examples(run.job):
        place = source.file_index, source.line
        if example.example_id not in run.predictions:
            raise Error(
                f"{run.folder / PREDICTIONS} has no example {example.example_id} of "
                f"{source.path}, line {source.line}; answer the questions again"
            )
        if example.annotations:
            scores = run.scores[place] if run.scores is not None else None
            yield case(example, run, scores, found_sources.get(place))
        on_example(1, len(run.predictions))


def case(example: Example, run: Finished, scores: WindowScores | None, source: str | None) -> Case:
    """One annotated example as a case."""
    config, label = run.job.windows, run.predictions[example.example_id]
    every = contexts(example, replace(config, max_contexts=EVERY))
    read = every[: config.max_contexts]
    token_map = features(example, run.tokenizer, config).token_map
    kept = Kept(read, token_map, pairs(scores) if scores is not None else None)
    long, short = judge(example, label)
    return Case(
        example.example_id,
        example.question,
        traits(example, long.has_gold, short.has_gold, every, len(read), source),
        *verdicts(example, label, kept),
    )


def sources(job: Job) -> dict[Place, str]:
    """The ``source`` of each record, for files whose first record has one."""
    found: dict[Place, str] = {}
    for index, path in enumerate(job.files):
        for number, (source, line) in enumerate(inputs.read_lines(path, index, limit=job.limit)):
            named = None if isinstance(line, RecordError) else _source(line)
            if named is None and number == 0:
                break
            if named is not None:
                found[index, source.line] = named
    return found


def _source(line: bytes) -> str | None:
    try:
        named = orjson.loads(line).get("source")
    except (ValueError, AttributeError):
        return None
    return named if isinstance(named, str) and named else None
