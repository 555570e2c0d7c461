"""The stages of a BERT-Joint model that is cut between layers, each a process of its own.

A stage is a Keras model of some of the layers. It gets the activations of the stage before, and the
ids and the mask of the windows, which attention needs in every layer. The whole model is the case
without cuts. GPipe: Huang et al. 2019, https://arxiv.org/abs/1811.06965.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments import Values, units
from experiments.partition.group import Arrays, Seat, Shapes, slices
from experiments.workloads import Workload
from nq.model.config import ModelConfig
from nq.records import MODEL_INPUTS

LOGITS = ("start_logits", "end_logits", "type_logits")
ALONE = 5
Compute = Callable[[Sequence[Any]], Sequence[Any]]


@dataclass(frozen=True)
class Task:
    """What a process computes of a batch: the stage of its own number of a model with cuts.

    A cut is the layer before it. Without cuts a process computes the whole model for its share of
    the windows. The workload is that of all processes together, but its threads are those of one.
    """

    workload: Workload
    cuts: tuple[int, ...] = ()


def even_cuts(config: ModelConfig, stages: int) -> tuple[int, ...]:
    """Returns the cuts between stages of as equal numbers of layers as possible.

    >>> even_cuts(ModelConfig(num_hidden_layers=6), 2), even_cuts(ModelConfig(), 5)
    ((3,), (3, 6, 8, 10))
    """
    layers = config.num_hidden_layers
    if stages > layers:
        raise ValueError(
            f"a model of {layers} layers cannot be cut into {stages} stages: expected at most as "
            "many stages as layers; give fewer --stages"
        )
    return tuple(part.start for part in slices(0, layers, stages)[1:])


def check_devices(config: ModelConfig, devices: int) -> None:
    """Checks that heads and units of the layers of a model can be divided evenly."""
    for what, count in (
        ("attention heads", config.num_attention_heads),
        ("units of the intermediate layer", config.intermediate_size),
    ):
        if count % devices:
            raise ValueError(
                f"{count} {what} cannot be divided among {devices} devices: expected a number of "
                f"devices that divides {count}"
            )
    by_distance = config.relative_attention_num_buckets or config.relative_attention
    if (by_distance or config.is_gated) and devices > 1:
        raise ValueError(
            f"the layers of {config.model_type} have attention by distance or gates, which are not "
            "divided here: expected a model without them, such as a BERT"
        )


def stage_model(model: Any, cuts: Sequence[int], number: int) -> Any:
    """Returns the Keras model of one stage, which shares the weights of the whole model.

    Args:
        model: made by ``joint.build``, with weights of its own for each layer.
        cuts: the layers before which the model is cut, ascending.
        number: of the stage, from 0.

    Returns:
        A model from ``input_ids``, ``input_mask`` and ``segment_ids`` (the first stage) or from
        ``[B * L, hidden]``, ``input_ids`` and ``input_mask`` (the others) to ``[B * L, hidden]`` or
        to the logits in the order of ``LOGITS`` (the last stage), all of them lists.
    """
    import keras

    named = {tensor.name: tensor for tensor in model.inputs}
    inputs = [named[name] for name in MODEL_INPUTS]
    if number:
        inputs = [_boundary(model, cuts[number - 1]), *inputs[:2]]
    if number == len(cuts):
        outputs = [model.output[name] for name in LOGITS]
    else:
        outputs = [_boundary(model, cuts[number])]
    return keras.Model(inputs, outputs, name=f"stage_{number}")


def _boundary(model: Any, layer: int) -> Any:
    """Returns the symbolic activations between a layer and the one before it."""
    return model.get_layer(f"layer_{layer - 1}_output_norm").output


def shapes(workload: Workload, cuts: Sequence[int]) -> Shapes:
    """Returns the arrays that the processes share: inputs, activations at the cuts, logits."""
    windows = workload.batch, workload.length
    pieces = workload.batch * workload.length, workload.config.hidden_size
    return {
        **dict.fromkeys(MODEL_INPUTS, (windows, "int32")),
        **{f"hidden_{number}": (pieces, "float32") for number in range(1, len(cuts) + 1)},
        **dict.fromkeys(LOGITS[:2], (windows, "float32")),
        LOGITS[2]: ((workload.batch, 5), "float32"),
    }


class Stage:
    """A stage of a model, or the whole model, with its place in the shared arrays.

    Its methods are the commands of its process. Each returns seconds.
    """

    def __init__(self, compute: Compute, seat: Seat) -> None:
        self.compute = compute
        self.seat = seat
        self.arrays = seat.arrays()
        task: Task = seat.task
        self.length = task.workload.length
        self.number = seat.number if task.cuts else 0
        self.is_last = self.number == len(task.cuts)
        batch = task.workload.batch
        self.rows = slice(0, batch) if task.cuts else slices(0, batch, seat.count)[seat.number]
        self.before = seat.before if task.cuts else None
        self.after = seat.after if task.cuts else None

    def run(self, micro_batches: int) -> float:
        """Computes the batch in micro-batches, at most one for each window.

        Returns the seconds without those of waiting for neighbours.
        """
        started = time.perf_counter()
        waited_s = self.seat.waited_s()
        for rows in slices(self.rows.start, self.rows.stop, micro_batches):
            if self.before:
                self.before.wait()
            self._windows(rows)
            if self.after:
                self.after.send()
        return time.perf_counter() - started - (self.seat.waited_s() - waited_s)

    def alone(self, windows: int) -> float:
        """Computes the first windows of the batch without waiting for neighbours.

        Returns the median of several times, after one in which they are compiled.
        """
        rows = slice(self.rows.start, self.rows.start + windows)
        seconds = [units.seconds(lambda: self._windows(rows)) for _ in range(ALONE + 1)]
        return statistics.median(seconds[1:])

    def bounce(self, times: int) -> float:
        """Sends a token from the first process to the second one and back, several times.

        Returns the mean of its way, both directions taken as equal.
        """
        started = time.perf_counter()
        for _ in range(times):
            if self.number == 0 and self.after:
                self.after.send()
                self.after.wait()
            elif self.number == 1 and self.before:
                self.before.wait()
                self.before.send()
        return (time.perf_counter() - started) / (2 * times)

    def _windows(self, rows: slice) -> None:
        """Computes some windows from the shared arrays into the shared arrays."""
        arrays = self.arrays
        pieces = slice(rows.start * self.length, rows.stop * self.length)
        inputs = [arrays[name][rows] for name in MODEL_INPUTS]
        if self.number:
            inputs = [arrays[f"hidden_{self.number}"][pieces], *inputs[:2]]
        outputs = self.compute(inputs)
        if not self.is_last:
            arrays[f"hidden_{self.number + 1}"][pieces] = outputs[0]
            return
        for name, values in zip(LOGITS, outputs, strict=True):
            arrays[name][rows] = values


def load(seat: Seat) -> tuple[list[list[int]], units.Work]:
    """Loads a stage; a command is the name of a method of ``Stage`` with its argument."""
    from nq.model.runtime import import_tensorflow

    tensorflow = import_tensorflow()
    from nq.model import joint

    task: Task = seat.task
    model = joint.build(task.workload.config)
    own = stage_model(model, task.cuts, seat.number if task.cuts else 0)
    traced = tensorflow.function(lambda inputs: own(inputs, training=False))

    def compute(inputs: Sequence[Any]) -> Sequence[Any]:
        outputs = traced([tensorflow.constant(values) for values in inputs])
        return [values.numpy() for values in tensorflow.nest.flatten(outputs)]

    stage = Stage(compute, seat)

    def work(command: tuple[str, int]) -> float:
        name, number = command
        seconds: float = getattr(stage, name)(number)
        return seconds

    return units.thread_cores(), work


def fill(arrays: Arrays, rows: Values) -> None:
    """Writes the inputs of a batch into the shared arrays."""
    for name in MODEL_INPUTS:
        arrays[name][:] = rows[name]


def drift(arrays: Arrays, expected: Arrays) -> float:
    """Returns the largest difference of a logit from those of another group."""
    return max(float(np.abs(arrays[name] - expected[name]).max()) for name in LOGITS)
