"""The result of a run that a runner of Beam answered, from what its workers wrote."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import IO, TYPE_CHECKING, Any

from nq.evaluation.answers import Answered, AnswerFiles
from nq.formats.streams import shown
from nq.inference.scorer import Counters
from nq.preprocess.store import encode_dead_letter
from nq.records import DeadLetter, ExampleId
from nq.runs.clock import Clock, iso
from nq.runs.job import Job
from nq.runs.machine import machine
from nq.runs.phases import PIPELINE
from nq.runs.result import Result
from nq.runs.scoring import Plan, duplicate

if TYPE_CHECKING:
    from nq.beam.elements import Decided, Work
    from nq.beam.runner import Finished

MODEL_S, LOAD_S = "inference_batch_latency_micro_secs", "load_model_latency_milli_secs"
"""Distributions of Beam's ``RunInference``."""


@dataclass
class Totals:
    """What was done for all examples; see ``nq.beam.elements.Work``."""

    windows: int = 0
    unread_blocks: int = 0
    truncated_pages: int = 0
    reader_windows: int = 0
    rescored: int = 0
    prepare_s: float = 0.0
    counters: Counters = field(default_factory=Counters)
    devices: set[str] = field(default_factory=set)
    precisions: set[str] = field(default_factory=set)

    def add(self, work: Work, is_answered: bool) -> None:
        """Adds what was done for one example.

        Args:
            work: what it was.
            is_answered: whether the example is among the answers; a repeated record is not.
        """
        self.windows += work.windows
        self.unread_blocks += work.unread_blocks
        self.truncated_pages += work.unread_blocks > 0
        self.reader_windows += work.reader_windows * is_answered
        self.rescored += work.rescored * is_answered
        self.prepare_s += work.prepare_s
        self.devices.add(work.device)
        self.precisions.add(work.precision)
        for one in fields(Counters) if work.part else ():
            total = getattr(self.counters, one.name) + getattr(work.part, one.name)
            setattr(self.counters, one.name, total)


class Merge:
    """Divides the records of the workers into answers and dead letters.

    Args:
        job: whose files they are of.

    Attributes:
        totals: of the answers.
        dead_letters: how many there are.
    """

    def __init__(self, job: Job) -> None:
        self.totals, self.dead_letters = Totals(), 0
        self._files = job.files

    def answers(
        self, elements: Iterable[Decided | DeadLetter], output: IO[bytes]
    ) -> Iterator[Answered]:
        """Yields the answers; writes the dead letters, those for repeated ids at the end.

        Args:
            elements: in the order of the input.
            output: of the dead letters.
        """
        seen, duplicates = set[ExampleId](), list[DeadLetter]()
        for element in elements:
            path = shown(self._files[element.source.file_index])
            item = replace(element, source=replace(element.source, path=path))
            if isinstance(item, DeadLetter):
                self._write(item, output)
                continue
            key = item.answered.judgment.example_id
            self.totals.add(item.work, key not in seen)
            if key in seen:
                duplicates.append(duplicate(item.source, key, item.question))
                continue
            seen.add(key)
            yield item.answered
        for letter in duplicates:
            self._write(letter, output)

    def _write(self, letter: DeadLetter, output: IO[bytes]) -> None:
        output.write(f"{encode_dead_letter(letter)}\n".encode())
        self.dead_letters += 1


@dataclass(frozen=True)
class Outcome:
    """Everything of which the result of a run is made.

    Args:
        finished: what the pipeline did.
        workers: among which few files were shared.
        merge: of the records.
        answers: of the run.
    """

    finished: Finished
    workers: int
    merge: Merge
    answers: AnswerFiles

    def result(self, plan: Plan, clock: Clock, options: Sequence[str]) -> Result:
        """Returns the result of the run that ends now."""
        job, totals, answers = plan.job, self.merge.totals, self.answers
        metrics = answers.evaluation.metrics()
        seconds = dict(clock.timer.seconds)
        return Result(
            folder=plan.folder,
            profile=str(job.profile),
            device=", ".join(sorted(totals.devices)),
            precision=", ".join(sorted(totals.precisions)),
            examples=answers.examples,
            windows=totals.windows,
            resumed_windows=0,
            read_windows=totals.counters.computed_windows,
            float32_windows=totals.counters.float32_windows,
            rescored=totals.rescored,
            reader_windows=totals.reader_windows,
            windows_per_s=totals.windows / seconds[PIPELINE],
            answered=answers.answered,
            dead_letters=self.merge.dead_letters,
            without_gold=answers.evaluation.without_gold,
            text_only=answers.evaluation.text_only,
            truncated_pages=totals.truncated_pages,
            unread_blocks=totals.unread_blocks,
            peak_memory_bytes=clock.peak_memory_bytes(),
            metrics=metrics,
            time={
                **seconds,
                "total_s": sum(seconds.values()),
                "preprocess_s": totals.prepare_s,
            },
            rows=tuple(answers.rows),
            started_at=iso(clock.started),
            ended_at=iso(time.time()),
            machine=machine(),
            threads=job.threads,
            not_comparable=(f"answered by {self.finished.runner}",),
            beam=self._beam(options),
        )

    def _beam(self, options: Sequence[str]) -> dict[str, Any]:
        """Returns runner, job and metrics of the pipeline as JSON values."""
        from nq.beam.flink import flink_job_id

        finished, counters = self.finished, self.finished.counters
        totals = self.merge.totals.counters
        model, load = (finished.distributions.get(name, (0, 0)) for name in (MODEL_S, LOAD_S))
        flink = flink_job_id(options, finished.job_name or "")
        examples, dead_letters = counters.get("examples", 0), counters.get("dead_letters", 0)
        return {
            "runner": finished.runner,
            "job_name": finished.job_name,
            "job_id": finished.job_id,
            **({} if flink is None else {"flink_job_id": flink}),
            "workers": self.workers,
            "metrics": {
                "records": examples + dead_letters,
                "dead_letters": dead_letters,
                "windows": counters.get("windows", 0),
                "parts": model[1],
                "model_s": model[0] / 1e6,
                "models": load[1],
                "load_s": load[0] / 1e3,
                "compile_s": totals.compile_s,
                "warmup_s": totals.warmup_s,
            },
        }
