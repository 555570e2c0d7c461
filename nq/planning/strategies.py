"""The strategies for a model on several devices, predicted and ranked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from nq.errors import Error
from nq.planning.costs import Costs, Workload, send, units
from nq.planning.devices import Device, Group
from nq.planning.partition import Stage, partition
from nq.planning.pipeline import Station, flow_seconds
from nq.text import counted

SINGLE, DATA, PIPELINE = "single device", "data parallel", "pipeline"
REPLICATED, TENSOR, TENSOR_PIPELINE = "replicated pipeline", "tensor", "tensor x pipeline"
COPIES = "nq answer --instances {} --threads {}"
MICRO_BATCHES_PER_STAGE = 4
"""GPipe finds the bubble negligible from so many micro-batches for each stage on."""
MOST_MICRO_BATCHES = 1024
"""With so many the bubble of 64 equal stages is 6 %."""


@dataclass(frozen=True)
class Plan:
    """A strategy on a group of devices, and what is predicted for it.

    Args:
        reason: why the plan is not possible; empty if it is.
        devices: number of devices that it uses.
        tensor: number of devices that share each layer.
        stages: stages of the pipeline; a data parallel plan has one stage with several replicas.
        micro_batches: number of parts into which a batch is cut.
        memory_bytes: memory of the fullest device.
        bubble: share of the devices' time in which they wait for others.
        moved_bytes: bytes between devices for a batch.
        hours, cost: for all windows, the cost in dollars; ``None`` if they are not known.
        command: the command that computes so on this machine; empty on others.
    """

    strategy: str = ""
    group: str = ""
    reason: str = ""
    devices: int = 1
    tensor: int = 1
    stages: tuple[Stage, ...] = ()
    micro_batches: int = 1
    memory_bytes: float = 0.0
    batch_s: float = math.inf
    bubble: float = 0.0
    moved_bytes: float = 0.0
    windows_per_s: float = 0.0
    hours: float | None = None
    cost: float | None = None
    command: str = ""

    @property
    def fits(self) -> bool:
        """Whether the plan is possible."""
        return not self.reason


@dataclass(frozen=True)
class Layout:
    """The stages of a pipeline; ``tensor`` devices hold each replica of a stage together."""

    tensor: int
    stages: tuple[Stage, ...]

    @property
    def devices(self) -> int:
        """Number of devices."""
        return self.tensor * sum(stage.replicas for stage in self.stages)


def plans(workload: Workload, group: Group) -> list[Plan]:
    """Returns the best plan of each strategy on a group, in their ``order``."""
    speeds = group.device.flop_per_s
    if workload.compute_type not in speeds:
        raise Error(
            f"{group.device.name} has no FLOP/s for {workload.compute_type}: choose --type "
            f"{' or '.join(speeds)}"
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
    """Returns the key to sort plans by: whether they fit, their time, the number of devices."""
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

    It balances the stages for ``MICRO_BATCHES_PER_STAGE`` micro-batches for each stage. Where no
    partition fits into the memory, it is the balanced one, which does not fit either. A stage has
    ``replicas`` replicas at most.
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
    """Returns the plan of a layout with the number of micro-batches that is the fastest.

    One micro-batch, as many as devices, and the doubles of both are tried.
    """
    most = min(workload.batch, MOST_MICRO_BATCHES)
    doubled = {start << i for start in (1, layout.devices) for i in range(most.bit_length())}
    plans = [_plan(workload, device, layout, count) for count in sorted(doubled) if count <= most]
    return min(plans, key=lambda plan: (*order(plan), plan.memory_bytes))


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
    price, reason = device.price_per_hour, ""
    if memory > device.memory_bytes:
        needs, has = memory / 1e9, device.memory_bytes / 1e9
        reason = f"a device needs {needs:.1f} GB and has {has:.1f} GB"
    return Plan(
        reason=reason,
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
