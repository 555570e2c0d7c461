"""Processes that compute one step together: pinned, with shared arrays and pipes between them.

Arrays are in one block of ``multiprocessing.shared_memory``. A pipe between two neighbours carries
only tokens that say that values are there. If a process ends, its neighbours notice it at their
pipes, so that no process waits for ever, and the block is removed in any case.
"""

import contextlib
import itertools
import math
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np

from experiments import units

ALIGNMENT = 64
Shapes = Mapping[str, tuple[tuple[int, ...], str]]
"""Shape and dtype of each array, by name."""
Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]


class Block(SharedMemory):
    """A block of shared memory with arrays in it; it stays mapped as long as an array refers to it.

    A block without the name of one that exists is new, and filled with zeros.
    """

    def __init__(self, shapes: Shapes, name: str | None = None) -> None:
        places, size = {}, 0
        for key, (shape, dtype) in shapes.items():
            places[key] = shape, dtype, size
            size += -(-math.prod(shape) * np.dtype(dtype).itemsize // ALIGNMENT) * ALIGNMENT
        super().__init__(name, create=name is None, size=max(size, 1))
        self._places = places

    def arrays(self) -> Arrays:
        """Returns the arrays, which are views of the block."""
        memory = memoryview(self.buf or b"")
        return {  # unlike np.ndarray, np.frombuffer keeps the block from being unmapped
            key: np.frombuffer(memory, dtype, math.prod(shape), first).reshape(shape)
            for key, (shape, dtype, first) in self._places.items()
        }

    def close(self) -> None:
        """Unmaps the block unless an array refers to it."""
        with contextlib.suppress(BufferError):
            super().close()


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
    """What a process of a group gets: its task and number, and the shared arrays.

    ``block`` is the name of the arrays' block; at the two ends a link to a neighbour is ``None``.
    """

    task: Any
    number: int
    count: int
    shapes: Shapes
    block: str
    before: Link | None
    after: Link | None

    def arrays(self) -> Arrays:
        """Returns the shared arrays."""
        return Block(self.shapes, self.block).arrays()

    def waited_s(self) -> float:
        """Returns the seconds that this process has waited for its neighbours so far."""
        return sum(link.waited_s for link in (self.before, self.after) if link)


@dataclass(frozen=True)
class Bounce:
    """The command to send a token from the first process to the second one and back, so often."""

    times: int


@dataclass(frozen=True)
class Lost:
    """The reply of a process whose neighbour has ended."""


def work(seat: Seat, run: Callable[[Any], Any]) -> units.Work:
    """Returns the work of a process of a group: ``run``, besides what all can do."""

    def answer(command: Any) -> Any:
        try:
            return _bounce(seat, command.times) if isinstance(command, Bounce) else run(command)
        except (EOFError, ConnectionError):
            for link in (seat.before, seat.after):
                if link:
                    link.pipe.close()  # the neighbours beyond notice it too
            return Lost()

    return answer


def _bounce(seat: Seat, times: int) -> float:
    """Returns the mean seconds of a token's way, both directions taken as equal."""
    started = time.perf_counter()
    for _ in range(times):
        if seat.number == 0 and seat.after:
            seat.after.send()
            seat.after.wait()
        elif seat.number == 1 and seat.before:
            seat.before.wait()
            seat.before.send()
    return (time.perf_counter() - started) / (2 * times)


@dataclass(frozen=True, eq=False)
class Group:
    """Running processes that share arrays with each other and with this process.

    ``loaded`` has the first reply of each process.
    """

    members: Sequence[units.Unit]
    arrays: Arrays
    block: str
    loaded: Sequence[Any]

    def ask(self, command: Any) -> list[Any]:
        """Returns the replies of all processes to a command."""
        return units.together(self.members, command)[1]


@contextlib.contextmanager
def started(
    load: units.Load,
    tasks: Sequence[Any],
    cores: Sequence[Sequence[int]],
    shapes: Shapes,
) -> Iterator[Group]:
    """Starts the processes of a group, which have loaded their tasks when the block begins.

    ``load`` is a function of a module that takes a ``Seat`` and returns the ``work`` of a process.
    Each process has as many threads as cores.
    """
    block, context, count = Block(shapes), multiprocessing.get_context("spawn"), len(tasks)
    try:
        with contextlib.ExitStack() as stack:
            members = []
            with contextlib.ExitStack() as ends:  # closed here, so that broken pipes are noticed
                links: list[tuple[Link | None, Link | None]] = [(None, None)]
                for _ in range(count - 1):
                    pair = context.Pipe()
                    for end in pair:
                        ends.callback(end.close)
                    links.append((Link(pair[0]), Link(pair[1])))
                links.append((None, None))
                for number, (task, own) in enumerate(zip(tasks, cores, strict=True)):
                    before, after = links[number][1], links[number + 1][0]
                    seat = Seat(task, number, count, shapes, block.name, before, after)
                    members.append(stack.enter_context(units.started(load, seat, own)))
            loaded = units.receive_all(members)
            group = Group(members, block.arrays(), block.name, loaded)
            yield group
            group.arrays.clear()
    finally:
        block.close()
        block.unlink()


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
