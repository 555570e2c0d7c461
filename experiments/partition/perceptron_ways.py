"""The perceptron divided in three ways between two processes: instances, pipeline, tensor split."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments import units
from experiments.partition.group import Arrays, Link, Seat, Shapes, slices, work
from experiments.partition.perceptron import (
    BATCH,
    SIZES,
    Layers,
    add,
    backward,
    forward,
    loss_gradient,
    update,
    weight_count,
    weights,
)
from experiments.partition.rows import FORWARD, INSTANCES, PIPELINE, TENSOR, TRAINING
from nq.records import FloatArray


@dataclass(frozen=True)
class Steps:
    """The command to compute steps of a kind, forward or training, one after the other.

    A pipeline divides a batch into micro-batches. ``alone`` lets a process compute its part without
    its neighbour, with what the shared arrays happen to hold.
    """

    kind: str
    count: int
    micro_batches: int = 1
    alone: bool = False


class Whole:
    """All layers for a share of the rows; several processes add their gradients."""

    def __init__(self, seat: Seat, arrays: Arrays) -> None:
        self.seat, self.arrays, self.layers = seat, arrays, weights()
        self.rows = slices(0, BATCH, seat.count)[seat.number]
        self.exchange = Exchange(seat, arrays["gradients"]) if seat.count > 1 else None

    def forward(self, micro_batches: int) -> list[FloatArray]:
        outputs = forward(self.layers, self.arrays["inputs"][self.rows])
        self.arrays["logits"][self.rows] = outputs[-1]
        return outputs

    def training(self, micro_batches: int) -> None:
        outputs = self.forward(micro_batches)
        gradient = loss_gradient(outputs[-1], self.arrays["labels"][self.rows])
        gradients, _ = backward(self.layers, outputs, gradient, first=True, ends=True)
        if self.exchange:
            flat = np.concatenate([value.ravel() for pair in gradients for value in pair])
            gradients = unflatten(self.exchange.sum(flat), gradients)
        update(self.layers, gradients)


def unflatten(flat: FloatArray, like: Layers) -> Layers:
    """Returns the parts of a flat array in the shapes of some layers."""
    parts, first = [], 0
    for value in (value for pair in like for value in pair):
        parts.append(flat[first : first + value.size].reshape(value.shape))
        first += value.size
    return list(zip(parts[::2], parts[1::2], strict=True))


class Exchange:
    """The all-reduce of two processes.

    ``slots`` are ``[2, 2, …]``: two in turn, so that none is written while the neighbour still
    reads, with a part for each process.
    """

    def __init__(self, seat: Seat, slots: FloatArray) -> None:
        self.link = _link(seat.before or seat.after)
        self.number, self.slots, self.turn = seat.number, slots, 0

    def sum(self, values: FloatArray) -> FloatArray:
        """Returns the sum of both processes' values."""
        self.turn ^= 1
        self.slots[self.turn, self.number] = values
        self.link.send()
        self.link.wait()
        total: FloatArray = self.slots[self.turn, 0] + self.slots[self.turn, 1]
        return total


def _link(link: Link | None) -> Link:
    if link is None:
        raise ValueError("the process has no neighbour: expected two processes")
    return link


class First:
    """The first stage of the pipeline: layer 1."""

    def __init__(self, seat: Seat, arrays: Arrays) -> None:
        self.after, self.arrays, self.layers = _link(seat.after), arrays, weights()[:1]

    def forward(self, micro_batches: int) -> None:
        self._send(micro_batches)
        self.after.wait()  # the logits of the step are there

    def training(self, micro_batches: int) -> None:
        kept, total = self._send(micro_batches), Layers()
        for rows, outputs in kept:
            self.after.wait()
            gradient = self.arrays["hidden_gradient"][rows]
            gradients, _ = backward(self.layers, outputs, gradient, first=True, ends=False)
            total = add(total, gradients)
        update(self.layers, total)

    def _send(self, micro_batches: int) -> list[tuple[slice, list[FloatArray]]]:
        kept = []
        for rows in slices(0, BATCH, micro_batches):
            outputs = forward(self.layers, self.arrays["inputs"][rows], ends=False)
            self.arrays["hidden"][rows] = outputs[-1]
            self.after.send()
            kept.append((rows, outputs))
        return kept


class Last:
    """The second stage of the pipeline: layers 2 and 3."""

    def __init__(self, seat: Seat, arrays: Arrays) -> None:
        self.before, self.arrays, self.layers = _link(seat.before), arrays, weights()[1:]

    def forward(self, micro_batches: int) -> None:
        for rows in slices(0, BATCH, micro_batches):
            self._receive(rows)
        self.before.send()

    def training(self, micro_batches: int) -> None:
        total = Layers()
        for rows in slices(0, BATCH, micro_batches):
            outputs = self._receive(rows)
            gradient = loss_gradient(outputs[-1], self.arrays["labels"][rows])
            gradients, gradient = backward(self.layers, outputs, gradient, first=False, ends=True)
            self.arrays["hidden_gradient"][rows] = gradient
            total = add(total, gradients)
            self.before.send()
        update(self.layers, total)

    def _receive(self, rows: slice) -> list[FloatArray]:
        self.before.wait()
        outputs = forward(self.layers, self.arrays["hidden"][rows])
        self.arrays["logits"][rows] = outputs[-1]
        return outputs


class Shard:
    """Columns of layer 1, rows of layer 2, all of layer 3: one all-reduce a step.

    The bias of layer 2 is added once, after the all-reduce. The backward pass needs none, because
    the gradient of the network's input is not computed.
    """

    def __init__(self, seat: Seat, arrays: Arrays) -> None:
        self.arrays, self.exchange = arrays, Exchange(seat, arrays["partial"])
        self.is_first = seat.number == 0
        own = slices(0, SIZES[1], seat.count)[seat.number]
        (kernel, bias), (rows, self.bias), last = weights()
        self.columns: Layers = [(kernel[:, own].copy(), bias[own].copy())]
        self.rows, self.last = rows[own].copy(), [last]

    def forward(self, micro_batches: int) -> tuple[list[FloatArray], list[FloatArray]]:
        first = forward(self.columns, self.arrays["inputs"], ends=False)
        hidden = np.maximum(self.exchange.sum(first[-1] @ self.rows) + self.bias, 0)
        last = forward(self.last, hidden)
        if self.is_first:
            self.arrays["logits"][:] = last[-1]
        return first, last

    def training(self, micro_batches: int) -> None:
        first, last = self.forward(micro_batches)
        gradient = loss_gradient(last[-1], self.arrays["labels"])
        ends, gradient = backward(self.last, last, gradient, first=False, ends=True)
        middle = gradient * (last[0] > 0)
        columns, _ = backward(self.columns, first, middle @ self.rows.T, first=True, ends=False)
        update(self.last, ends)
        update([(self.rows, self.bias)], [(first[-1].T @ middle, middle.sum(axis=0))])
        update(self.columns, columns)


PROGRAMS: dict[str, tuple[type[Any], type[Any]]] = {
    INSTANCES: (Whole, Whole),
    PIPELINE: (First, Last),
    TENSOR: (Shard, Shard),
}
"""What the first and the second process of each way compute; one core is one instance."""


def shapes() -> Shapes:
    """Returns the arrays that the processes share."""
    return {
        "inputs": ((BATCH, SIZES[0]), "float32"),
        "labels": ((BATCH,), "int32"),
        "hidden": ((BATCH, SIZES[1]), "float32"),
        "hidden_gradient": ((BATCH, SIZES[1]), "float32"),
        "partial": ((2, 2, BATCH, SIZES[2]), "float32"),
        "gradients": ((2, 2, weight_count()), "float32"),
        "logits": ((BATCH, SIZES[-1]), "float32"),
    }


def fill(arrays: Arrays, seed: int = 0) -> None:
    """Writes random inputs and labels into the shared arrays."""
    draw = np.random.default_rng(seed)
    arrays["inputs"][:] = draw.random((BATCH, SIZES[0]), np.float32)
    arrays["labels"][:] = draw.integers(0, SIZES[-1], BATCH)


def load(seat: Seat) -> tuple[list[list[int]], units.Work]:
    """Loads one process of the way that its task names; its commands are ``Steps``."""
    program = PROGRAMS[seat.task][seat.number](seat, seat.arrays())

    def run(command: Steps) -> float:
        """Returns the seconds of the steps, without those of waiting for the neighbour."""
        step = {FORWARD: program.forward, TRAINING: program.training}[command.kind]
        seat.open_links(not command.alone)
        started, waited_s = time.perf_counter(), seat.waited_s()
        for _ in range(command.count):
            step(command.micro_batches)
        return time.perf_counter() - started - (seat.waited_s() - waited_s)

    return units.thread_cores(), work(seat, run)


def moved_bytes(way: str, kind: str) -> int:
    """Returns the bytes that one step moves between two processes, in float32.

    A pipeline moves the activations of layer 1, and in training their gradients back. The tensor
    split moves the partial sums of layer 2 in both directions, data-parallel training all
    gradients in both directions.
    """
    hidden = 4 * BATCH * SIZES[1]
    training = kind == TRAINING
    return {
        PIPELINE: hidden * (2 if training else 1),
        TENSOR: 2 * 4 * BATCH * SIZES[2],
        INSTANCES: 2 * 4 * weight_count() if training else 0,
    }.get(way, 0)
