"""The strategies for a model on several devices, predicted and ranked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from nq.errors import Error
from nq.planning.collectives import send
from nq.planning.costs import Costs, units
from nq.planning.partition import Stage, partition
from nq.planning.pipeline import MICRO_BATCHES_PER_STAGE, Station, flow_seconds
from nq.planning.records import Device, Group, Plan, Workload
from nq.text import counted

SINGLE, DATA, PIPELINE = "single device", "data parallel", "pipeline"
REPLICATED, TENSOR, TENSOR_PIPELINE = "replicated pipeline", "tensor", "tensor x pipeline"
COPIES = "nq answer --instances {} --threads {}"
MOST_MICRO_BATCHES = 1024
"""With so many the bubble of 64 equal stages is 6 %."""


@dataclass(frozen=True)
class Layout:
    """Which devices hold which parts of the model.

    Args:
        tensor: devices that share each layer.
        stages: of the pipeline; each is held by ``tensor`` devices for each of its replicas.
    """

    tensor: int
    stages: tuple[Stage, ...]

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.tensor * sum(stage.replicas for stage in self.stages)


def plans(workload: Workload, group: Group) -> list[Plan]:
    """Returns the best plan of each strategy on a group: those that fit first, by speed.

    Args:
        workload: what is to be computed.
        group: on which devices.

    Raises:
        Error: the devices have no figure for the compute type.
    """
    known = group.device.flop_per_s
    if workload.compute_type not in known:
        raise Error(
            f"{group.device.name} has no FLOP/s for {workload.compute_type}: choose --type "
            f"{' or '.join(known)}"
        )
    best: dict[str, Plan] = {}
    for strategy, layout in choices(workload, group):
        device, name = group.device, group.name
        if strategy == SINGLE:
            device, name = group.whole, group.whole.name
        if isinstance(layout, str):
            plan = Plan(strategy, name, layout)
        else:
            plan = replace(evaluated(workload, device, layout), strategy=strategy, group=name)
            if strategy == DATA and group.threads:
                plan = replace(plan, command=COPIES.format(group.count, group.threads))
        best[strategy] = min(best.get(strategy, plan), plan, key=order)
    return sorted(best.values(), key=order)


def order(plan: Plan) -> tuple[bool, float, float]:
    """Returns what plans are sorted by: whether they fit, their time, the devices they take."""
    return not plan.fits, plan.batch_s, plan.devices


def choices(workload: Workload, group: Group) -> Iterator[tuple[str, Layout | str]]:
    """Yields strategies with their layouts, or with the reason why there is none."""
    everything, n = Stage(0, len(units(workload.config, workload.length))), group.count
    yield SINGLE, Layout(1, (everything,))
    if n == 1:
        reason = "there is one device: give several"
        yield from ((name, reason) for name in (DATA, PIPELINE, TENSOR, TENSOR_PIPELINE))
        return
    yield DATA, Layout(1, (replace(everything, replicas=n),))
    yield PIPELINE, _pipeline(workload, group)
    if n > 2:
        yield REPLICATED, _pipeline(workload, group, replicas=n)
    yield TENSOR, indivisible(workload, n) or Layout(n, (everything,))
    divisors = [t for t in range(2, n) if n % t == 0]
    reasons = {t: indivisible(workload, t) for t in divisors}
    if not divisors:
        yield TENSOR_PIPELINE, f"{n} devices cannot be divided into equal stages: give 4, 6 or 8"
    for t, reason in reasons.items():
        yield TENSOR_PIPELINE, reason or _pipeline(workload, group, tensor=t)


def indivisible(workload: Workload, tensor: int) -> str:
    """Returns why a layer cannot be divided among so many devices; empty if it can."""
    config = workload.config
    for count, noun in (
        (config.num_attention_heads, "attention head"),
        (config.intermediate_size, "inner unit"),
    ):
        if count % tensor:
            return f"{counted(count, noun)} cannot be divided among {tensor} devices"
    return ""


def _pipeline(workload: Workload, group: Group, tensor: int = 1, replicas: int = 1) -> Layout:
    """Returns the partition by PipeDream's programme for the devices of a group.

    It balances micro-batches of which there are ``MICRO_BATCHES_PER_STAGE`` for each stage. If no
    partition fits into the memory, the balanced one does not either.

    Args:
        workload: what is to be computed.
        group: on which devices.
        tensor: devices that share each layer.
        replicas: of a stage at most.
    """
    device, devices = group.device, group.count // tensor
    smallest = Costs(workload, device, math.ceil(workload.batch / MOST_MICRO_BATCHES), tensor)
    if replicas == 1:
        devices = min(devices, len(smallest.units))
    windows = math.ceil(workload.batch / (MICRO_BATCHES_PER_STAGE * devices))
    layers = Costs(workload, device, windows, tensor).seconds
    sends = [send(workload.activation_bytes(windows), device.link).seconds] * (len(layers) - 1)

    def fits(first: int, end: int) -> bool:
        return smallest.stage_bytes(Stage(first, end)) <= device.memory_bytes

    best = partition(layers, sends, devices, replicas, split=True, fits=fits)
    best = best or partition(layers, sends, devices, replicas, split=True)
    assert best, "a model has three parts at least, which two devices can share"
    return Layout(tensor, best.stages)


def evaluated(workload: Workload, device: Device, layout: Layout) -> Plan:
    """Returns the plan of a layout with the number of micro-batches that is the fastest."""
    tried = [_plan(workload, device, layout, m) for m in _counts(workload.batch, layout.devices)]
    return min(tried, key=lambda plan: (*order(plan), plan.memory_bytes))


def _counts(batch: int, devices: int) -> list[int]:
    """Returns numbers of micro-batches to try: 1 and the number of devices, and their doubles."""
    most = min(batch, MOST_MICRO_BATCHES)
    doubled = {start << i for start in (1, devices) for i in range(most.bit_length())}
    return sorted(count for count in doubled if count <= most)


def _plan(workload: Workload, device: Device, layout: Layout, micro_batches: int) -> Plan:
    """Returns the plan of a layout, for micro-batches of equal size."""
    windows = math.ceil(workload.batch / micro_batches)
    count = math.ceil(workload.batch / windows)
    costs, stages = Costs(workload, device, windows, layout.tensor), layout.stages
    memory = max(map(costs.stage_bytes, stages))
    computing = [costs.stage_seconds(stage) for stage in stages]
    between = send(workload.activation_bytes(windows), device.link)
    stations = [Station(computing[0], stages[0].replicas)]
    for before, stage, seconds in zip(stages, stages[1:], computing[1:], strict=False):
        links = min(before.replicas, stage.replicas)
        stations += [Station(between.seconds, links), Station(seconds, stage.replicas)]
    batch_s = flow_seconds(stations, count)
    sent = (len(stages) - 1) * layout.tensor * between.moved_bytes
    exchanged = workload.config.num_hidden_layers * costs.exchange.moved_bytes
    busy_s = count * layout.tensor * sum(computing)
    hours = workload.windows and math.ceil(workload.windows / workload.batch) * batch_s / 3600
    price = device.price_per_hour
    return Plan(
        reason=_too_large(memory, device),
        devices=layout.devices,
        tensor=layout.tensor,
        stages=stages,
        micro_batches=count,
        memory_bytes=memory,
        batch_s=batch_s,
        bubble=1 - busy_s / (layout.devices * batch_s),
        moved_bytes=count * (sent + exchanged),
        windows_per_s=workload.batch / batch_s,
        hours=hours,
        cost=None if hours is None or price is None else hours * layout.devices * price,
    )


def _too_large(memory: float, device: Device) -> str:
    if memory <= device.memory_bytes:
        return ""
    return f"a device needs {memory / 1e9:.1f} GB and has {device.memory_bytes / 1e9:.1f} GB"
