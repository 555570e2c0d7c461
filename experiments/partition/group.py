"""Processes that compute one step together: pinned, with shared arrays and pipes between them.

Arrays are in shared memory. A pipe between two neighbours carries only tokens that say that values
are there. If a process ends, its neighbours notice it at their pipes and end too, so that no
process waits for ever.
"""

import contextlib
import itertools
import math
import multiprocessing
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from experiments import Values, units

Shapes = Mapping[str, tuple[tuple[int, ...], str]]
"""Shape and dtype of each array, by name."""
Arrays = dict[str, np.ndarray[Any, Any]]
CONTEXT = multiprocessing.get_context("spawn")


@dataclass
class Link:
    """One end of a pipe to a neighbour, and the seconds that this process has waited for tokens."""

    pipe: Connection
    waited_s: float = 0.0

    def send(self) -> None:
        """Sends a token."""
        self.pipe.send_bytes(b"1")

    def wait(self) -> None:
        """Waits for a token."""
        started = time.perf_counter()
        self.pipe.recv_bytes()
        self.waited_s += time.perf_counter() - started


@dataclass(frozen=True)
class Seat:
    """What a process of a group gets: the task, its number, and the shared arrays.

    ``memory`` is that of the arrays; at the two ends a link to a neighbour is ``None``.
    """

    task: Any
    number: int
    count: int
    shapes: Shapes
    memory: Values
    before: Link | None = None
    after: Link | None = None

    def arrays(self) -> Arrays:
        """Returns the shared arrays."""
        return {
            name: np.frombuffer(self.memory[name], dtype).reshape(shape)
            for name, (shape, dtype) in self.shapes.items()
        }

    def waited_s(self) -> float:
        """Returns the seconds that this process has waited for its neighbours so far."""
        return sum(link.waited_s for link in (self.before, self.after) if link)


def shared_memory(shapes: Shapes) -> Values:
    """Returns memory of arrays of zeros, which processes that start with it share."""
    return {
        name: CONTEXT.RawArray("b", math.prod(shape) * np.dtype(dtype).itemsize)
        for name, (shape, dtype) in shapes.items()
    }


@dataclass(frozen=True, eq=False)
class Group:
    """Running processes that share arrays with each other and with this process.

    ``loaded`` has the first reply of each process.
    """

    members: Sequence[units.Unit]
    arrays: Arrays
    loaded: Sequence[Any]

    def ask(self, *command: Any) -> list[Any]:
        """Returns the replies of all processes to a command."""
        return units.together(self.members, command)[1]


@contextlib.contextmanager
def started(
    load: units.Load, task: Any, cores: Sequence[Sequence[int]], shapes: Shapes
) -> Iterator[Group]:
    """Starts the processes of a group, which have loaded the task when the block begins.

    ``load`` is a function of a module that takes a ``Seat``. There is a process for each set of
    cores, and it has as many threads as cores.
    """
    memory, count = shared_memory(shapes), len(cores)
    with contextlib.ExitStack() as stack:
        members = []
        with contextlib.ExitStack() as ends:  # closed here, so that broken pipes are noticed
            before = None
            for number, own in enumerate(cores):
                after = following = None
                if number < count - 1:
                    pair = CONTEXT.Pipe()
                    for end in pair:
                        ends.callback(end.close)
                    after, following = map(Link, pair)
                seat = Seat(task, number, count, shapes, memory, before, after)
                members.append(stack.enter_context(units.started(load, seat, own)))
                before = following
        yield Group(members, seat.arrays(), units.receive_all(members))


def slices(first: int, last: int, count: int) -> list[slice]:
    """Divides rows into ``count`` slices, of which the first ones may be longer by one row.

    There are fewer slices if there are fewer rows.

    >>> [(part.start, part.stop) for part in slices(0, 8, 3)]
    [(0, 3), (3, 6), (6, 8)]
    """
    count = min(count, last - first)
    size, longer = divmod(last - first, count)
    ends = [first + i * size + min(i, longer) for i in range(count + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(ends)]
