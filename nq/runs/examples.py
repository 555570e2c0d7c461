"""The examples of a job: all of them, each once, or by their place in its files."""

from __future__ import annotations

from collections.abc import Iterator

from nq.errors import Error
from nq.formats import inputs
from nq.records import DeadLetter, Example, ExampleId, IntArray, Source
from nq.runs.job import Job


def examples(job: Job) -> Iterator[tuple[Source, Example]]:
    """The good records of the input, in order; the bad ones are dead letters already."""
    left = job.limit
    for index, path in enumerate(job.files):
        for source, item in inputs.read_records(path, index, limit=left):
            if left is not None:
                left -= 1
            if isinstance(item, Example):
                yield source, item


def answered_examples(job: Job) -> Iterator[tuple[Source, Example]]:
    """The examples that a run of ``job`` answers, each once, in order."""
    return unique(examples(job), [])


def unique(
    found: Iterator[tuple[Source, Example]], duplicates: list[DeadLetter]
) -> Iterator[tuple[Source, Example]]:
    """The first example of every id; later ones become dead letters."""
    seen: set[ExampleId] = set()
    for source, example in found:
        if example.example_id in seen:
            reason = f"example_id {example.example_id} was there before"
            duplicates.append(DeadLetter(source, reason, example.question))
        else:
            seen.add(example.example_id)
            yield source, example


class ByPlace:
    """The examples of a job by file and line, found fastest in their order."""

    def __init__(self, job: Job) -> None:
        self._job, self._ahead, self._at = job, examples(job), (-1, -1)

    def __call__(self, keys: IntArray) -> list[Example]:
        """Those of the windows with these keys ``[N, 2]``, each once."""
        return [self._find((file, line)) for file, line in dict.fromkeys(map(tuple, keys.tolist()))]

    def _find(self, key: tuple[int, int]) -> Example:
        if key <= self._at:
            self._ahead = examples(self._job)
        for source, example in self._ahead:
            self._at = source.file_index, source.line
            if self._at == key:
                return example
        raise Error(f"line {key[1]} of {self._job.files[key[0]]} is no example any more")
