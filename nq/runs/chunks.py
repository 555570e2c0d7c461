"""The prepared folders of a job, one for each chunk of its files."""

from collections.abc import Iterator
from itertools import islice

from nq.beam.prepare import Work, prepare_again
from nq.errors import DamagedError
from nq.preprocess.store import Prepared
from nq.records import Windowed
from nq.runs.measure import WAIT, Clock


class Chunks:
    """The prepared chunks of a job's files, in order; waits for each when it is needed.

    Each chunk has a request and a folder in ``work``, and is prepared again by ``workers``
    processes if it is damaged. The clock gets the time of waiting.
    """

    def __init__(
        self, prepared: Iterator[Prepared], work: Work, workers: int | None, clock: Clock
    ) -> None:
        self.ready: list[Prepared] = []
        self._prepared, self._work, self._workers = prepared, work, workers
        self._clock = clock

    def __iter__(self) -> Iterator[Windowed]:
        for number in range(len(self._work)):
            yield from self.examples(number)

    def __getitem__(self, number: int) -> Prepared:
        while len(self.ready) <= number:
            with self._clock(WAIT):
                self.ready.append(next(self._prepared))
        return self.ready[number]

    def examples(self, number: int) -> Iterator[Windowed]:
        """Yields the examples of a chunk; one that is damaged is prepared again once."""
        done, (request, folder) = 0, self._work[number]
        try:
            for item in self[number].read(request):
                yield item
                done += 1
            return
        except DamagedError as damage:
            with self._clock(WAIT):
                self.ready[number] = prepare_again(request, folder, damage, self._workers)
        yield from islice(self[number].read(request), done, None)

    def total(self, name: str) -> int:
        """Returns the sum of a field of ``Prepared`` over the chunks so far."""
        return sum(getattr(chunk, name) for chunk in self.ready)
