"""What each stage of a job takes for one example, on one core of this machine."""

import importlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from experiments import units
from experiments.scale.predict import CHECK, MERGE, SKIP, START

COPIES = 50
"""How often each answer is merged, since one takes less than a millisecond."""
NO_SHARE, COUNT = (0, 1 << 30), "count"

T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """What is measured: questions with pages in files, by a model folder."""

    files: tuple[str, ...]
    model: Path
    profile: str
    batch_size: int
    limit: int | None


def load(task: Task) -> tuple[dict[str, Any], units.Work]:
    """Measures in a process that has one core; the reply has seconds for one example."""
    from nq.model.runtime import import_tensorflow

    importlib.import_module("nq.beam.runner")  # imports Beam without Beam's messages
    started = time.perf_counter()
    import_tensorflow(1)
    from nq.beam.files import read_records
    from nq.records import Example

    imported_s = time.perf_counter() - started
    check_s, _ = _timed(lambda: _check(task))
    skip_s, _ = _timed(lambda: [_count(read_records(f, share=NO_SHARE)) for f in task.files])
    records = sum(_count(read_records(path)) for path in task.files)
    read_s, read = _timed(
        lambda: list(islice((r for path in task.files for r in read_records(path)), task.limit))
    )
    pages = [(source, item) for source, item in read if isinstance(item, Example)]
    measured = _Stages(task).measure(pages)
    seconds = {
        CHECK: check_s,
        SKIP: skip_s * len(pages) / records,
        "read": read_s,
        **{name: value for name, value in measured.items() if name not in (START, COUNT)},
    }
    costs = {name: value / len(pages) for name, value in seconds.items()}
    costs[START] = imported_s + measured[START]
    windows = measured[COUNT] / len(pages)
    return {"examples": len(pages), "windows_per_example": windows, "costs": costs}, str


def _check(task: Task) -> dict[str, Any]:
    """Checks the questions and returns their digests, as a run does first."""
    from nq.beam.files import BEAM
    from nq.questions import Questions

    with Questions.open(task.files, None, task.limit, BEAM) as questions:
        return questions.key


class _Stages:
    """The stages of a worker, and the merging of their answers."""

    def __init__(self, task: Task) -> None:
        from nq.inference.load import ScorerSpec
        from nq.inference.profile import Profile
        from nq.model.model_spec import find_model

        self.model = find_model(task.model)
        self.spec = ScorerSpec(self.model, Profile.parse(task.profile), task.batch_size, threads=1)

    def measure(self, pages: Sequence[tuple[Any, Any]]) -> dict[str, float]:
        """Returns the seconds of each stage for all pages, and how many windows there were."""
        from nq.beam.merge import encode
        from nq.inference.load import load_scorer
        from nq.inference.scorer import score_examples

        start_s, scorer = _timed(lambda: load_scorer(self.spec))
        windows_s, made = _timed(lambda: self._windowed(pages))
        warm_s, _ = _timed(lambda: list(score_examples(scorer, made[:1])))
        model_s, scored = _timed(lambda: list(score_examples(scorer, made)))
        decide_s, answers = _timed(lambda: self._decided(scored, scorer))
        encode_s, _ = _timed(lambda: list(map(encode, answers)))
        return {
            **{START: start_s + warm_s, "windows": windows_s, "model": model_s},
            **{"decide": decide_s, "encode": encode_s, MERGE: _merge_s(answers)},
            COUNT: sum(map(len, made)),
        }

    def _windowed(self, pages: Sequence[tuple[Any, Any]]) -> list[Any]:
        from nq.beam.transforms import example_rows
        from nq.preprocess.contexts import unread_blocks
        from nq.preprocess.prepared import make_windows
        from nq.preprocess.tokenizers.load import load_tokenizer
        from nq.records import DeadLetter, Windowed

        windows = self.model.windows
        tokenizer = load_tokenizer(self.model.folder, windows.compat)
        examples = []
        for source, item in pages:
            made = make_windows(source, item, tokenizer, windows)
            if not isinstance(made, DeadLetter):
                rows, unread = example_rows(source, made), unread_blocks(item, windows)
                examples.append(Windowed(item, rows, source, unread))
        return examples

    def _decided(self, scored: Sequence[Any], scorer: Any) -> list[Any]:
        from nq.beam.score import Decided, Work
        from nq.evaluation.answer_files import answer
        from nq.postprocess.decision import decide

        answers = []
        for one in scored:
            answered = answer(one.example, decide(one.example, one.scores, self.model.decision))
            windows, parts = one.windowed, (scorer.device, scorer.precision)
            work = Work(len(windows), windows.unread_blocks, windows.seconds, *parts)
            answers.append(Decided(windows.source, one.example.question, answered, work))
        return answers


def _merge_s(answers: Sequence[Any]) -> float:
    """Returns the seconds of merging and writing the answers once."""
    from nq.beam.merge import encode, merged
    from nq.evaluation.answer_files import AnswerFiles
    from nq.formats.tfrecord import frame
    from nq.records import Source

    with tempfile.TemporaryDirectory(prefix="nq-scale-") as name:
        folder = Path(name)
        with (folder / "answers").open("wb") as file:
            for line in range(COPIES * len(answers)):
                one = replace(answers[line % len(answers)], source=Source(0, "", line + 1))
                file.write(frame(encode(one)))

        def write() -> None:
            AnswerFiles(()).write(folder, (one.answered for one in merged([folder / "answers"])))

        return _timed(write)[0] / COPIES


def _timed(call: Callable[[], T]) -> tuple[float, T]:
    started = time.perf_counter()
    result = call()
    return time.perf_counter() - started, result


def _count(values: Iterator[Any]) -> int:
    return sum(1 for _ in values)
