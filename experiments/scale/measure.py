"""What each stage of a job takes for one example, on one core of this machine."""

import importlib
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

from experiments import Values, units
from experiments.scale.predict import CHECK, MERGE, SKIP, START

COPIES = 50
"""How often each answer is merged, since one takes less than a millisecond."""
NO_SHARE = (0, 1 << 30)

T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """What is measured: questions with pages in files, by the model or the two of a folder."""

    files: tuple[str, ...]
    model: Path
    profile: str
    batch_size: int
    limit: int | None


def load(task: Task) -> tuple[Values, units.Work]:
    """Measures in a process that has one core; the reply has seconds for one example."""
    from nq.model.runtime import import_tensorflow

    importlib.import_module("nq.beam.runner")  # imports Beam without Beam's messages
    started = time.perf_counter()
    import_tensorflow(1)
    from nq.beam.files import BEAM
    from nq.formats.inputs import read_records
    from nq.questions import Questions
    from nq.records import Example

    imported_s = time.perf_counter() - started

    def check() -> Values:
        with Questions.open(task.files, None, task.limit, BEAM) as questions:
            return questions.key  # the digests, with which a run begins

    check_s, _ = _timed(check)
    skip_s, _ = _timed(lambda: [list(read_records(f, share=NO_SHARE)) for f in task.files])
    records = sum(1 for path in task.files for _ in read_records(path))
    every = chain.from_iterable(map(read_records, task.files))
    read_s, read = _timed(lambda: list(islice(every, task.limit)))
    pages = [(source, item) for source, item in read if isinstance(item, Example)]
    seconds, start_s, windows = _stages(task, pages)
    seconds |= {CHECK: check_s, SKIP: skip_s * len(pages) / records, "read": read_s}
    costs = {name: value / len(pages) for name, value in seconds.items()}
    costs[START] = imported_s + start_s
    per_example = windows / len(pages)
    return {"examples": len(pages), "windows_per_example": per_example, "costs": costs}, str


def _stages(task: Task, pages: Sequence[tuple[Any, Any]]) -> tuple[dict[str, float], float, int]:
    """Measures the stages of a worker, and the merging of its answers.

    Returns:
        The seconds of each stage for all pages, those until the model is warm, and the windows.
    """
    from nq.beam.merge import encode, merged
    from nq.beam.score import Decided, Work
    from nq.beam.transforms import example_rows
    from nq.evaluation.answer_files import answer, write_answers
    from nq.formats.tfrecord import frame
    from nq.inference.load import ScorerSpec, load_scorer
    from nq.inference.profile import Profile
    from nq.inference.scorer import score_examples
    from nq.model.model import Model
    from nq.postprocess.decision import decide
    from nq.preprocess.contexts import unread_blocks
    from nq.preprocess.prepared import make_windows
    from nq.records import DeadLetter, Source, Windowed

    model = Model.open(task.model)

    def windowed() -> list[Windowed]:
        tokenizer = model.tokenizer
        examples = list[Windowed]()
        for source, item in pages:
            made = make_windows(source, item, tokenizer, model.windows)
            if not isinstance(made, DeadLetter):
                rows = example_rows(source, made)
                unread = unread_blocks(item, model.windows)
                examples.append(Windowed(item, rows, source, unread))
        return examples

    def decided(one: Any) -> Decided:
        windows, example = one.windowed, one.example
        answered = answer(example, decide(example, one.scores, model.decision))
        figures = len(windows), windows.unread_blocks, windows.seconds
        work = Work(*figures, scorer.device, scorer.precision)
        return Decided(windows.source, example.question, answered, work)

    spec = ScorerSpec(model, Profile(task.profile), task.batch_size, threads=1)
    start_s, scorer = _timed(lambda: load_scorer(spec))
    windows_s, made = _timed(windowed)
    warm_s, _ = _timed(lambda: list(score_examples(scorer, made[:1])))
    model_s, scored = _timed(lambda: list(score_examples(scorer, made)))
    decide_s, answers = _timed(lambda: list(map(decided, scored)))
    encode_s, _ = _timed(lambda: list(map(encode, answers)))
    with tempfile.TemporaryDirectory(prefix="nq-scale-") as name:
        file = Path(name) / "answers"
        with file.open("wb") as stream:
            for line in range(COPIES * len(answers)):
                one = replace(answers[line % len(answers)], source=Source(0, "", line + 1))
                stream.write(frame(encode(one)))
        answered = (one.answered for one in merged([file]))
        merge_s, _ = _timed(lambda: write_answers(Path(name), answered, ()))
    seconds = {
        "windows": windows_s,
        "model": model_s,
        "decide": decide_s,
        "encode": encode_s,
    }
    return seconds | {MERGE: merge_s / COPIES}, start_s + warm_s, sum(map(len, made))


def _timed(call: Callable[[], T]) -> tuple[float, T]:
    started = time.perf_counter()
    result = call()
    return time.perf_counter() - started, result
