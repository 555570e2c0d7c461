"""The strategies for a model on several devices, predicted and ranked."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from experiments.planning.costs import ALL_REDUCES_PER_LAYER, Costs, Workload, send_s, units
from experiments.planning.devices import Device, Group
from experiments.planning.pipeline import Stage, flow_seconds, partition
from nq.errors import Error

SINGLE = "single device"
DATA = "data parallel"
PIPELINE = "pipeline"
REPLICATED = "replicated pipeline"
TENSOR = "tensor"
TENSOR_PIPELINE = "tensor x pipeline"
MICRO_BATCHES_PER_STAGE = 4
"""GPipe finds the bubble negligible with at least four micro-batches for each stage."""
MOST_MICRO_BATCHES = 1024
"""The bubble of 64 equal stages is then 6 %."""


@dataclass(frozen=True)
class Plan:
    """A strategy on a group of devices, and what is predicted for it.

    Args:
        reason: why the plan is not possible; empty if it is.
        devices: number of devices that it uses.
        tensor: number of devices that share each layer, and hold each replica of a stage together.
        stages: stages of the pipeline; a data parallel plan has one stage with several replicas.
        micro_batches: number of parts into which a batch is cut.
        memory_bytes: memory of the fullest device.
        bubble: share of the devices' time in which they wait for others.
        moved_bytes: bytes between devices for a batch.
        hours, cost: for all windows, the cost in dollars; ``None`` if they are not known.
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

    @property
    def fits(self) -> bool:
        """Whether the plan is possible."""
        return not self.reason


def plans(workload: Workload, group: Group) -> list[Plan]:
    """Returns the best plan of each strategy on a group, in their ``order``."""
    speeds = group.device.flop_per_s
    if workload.compute_type not in speeds:
        raise Error(
            f"{group.device.name} has no FLOP/s for {workload.compute_type}: choose --type "
            f"{' or '.join(speeds)}"
        )
    best: dict[str, Plan] = {}
    for choice in choices(workload, group):
        device = group.whole if choice.strategy == SINGLE else group.device
        plan = evaluated(workload, device, choice) if choice.fits else choice
        best[plan.strategy] = min(best.get(plan.strategy, plan), plan, key=order)
    return sorted(best.values(), key=order)


def order(plan: Plan) -> tuple[bool, float, float]:
    """Returns the key to sort plans by: whether they fit, their time, the number of devices."""
    return not plan.fits, plan.batch_s, plan.devices


def choices(workload: Workload, group: Group) -> Iterator[Plan]:
    """Yields plans without predictions, some of them with the reason why they are not possible."""
    everything = Stage(0, len(units(workload.config, workload.length)))
    n = group.count
    yield Plan(SINGLE, group.whole.name, stages=(everything,))
    if n == 1:
        reason = "there is one device: give several"
        for strategy in (DATA, PIPELINE, TENSOR, TENSOR_PIPELINE):
            yield Plan(strategy, group.name, reason)
        return
    yield Plan(DATA, group.name, stages=(replace(everything, replicas=n),))
    yield Plan(PIPELINE, group.name, stages=_stages(workload, group))
    if n > 2:
        yield Plan(REPLICATED, group.name, stages=_stages(workload, group, replicas=n))
    divisors = [t for t in range(2, n) if n % t == 0]
    heads = workload.config.num_attention_heads
    for tensor in (n, *divisors):
        strategy = TENSOR if tensor == n else TENSOR_PIPELINE
        if heads % tensor:
            reason = f"{heads} attention heads cannot be divided among {tensor} devices"
            yield Plan(strategy, group.name, reason)
        else:
            stages = (everything,) if tensor == n else _stages(workload, group, tensor)
            yield Plan(strategy, group.name, tensor=tensor, stages=stages)
    if not divisors:
        reason = f"{n} devices cannot be divided into equal stages: give 4, 6 or 8"
        yield Plan(TENSOR_PIPELINE, group.name, reason)


def _stages(
    workload: Workload, group: Group, tensor: int = 1, replicas: int = 1
) -> tuple[Stage, ...]:
    """Returns the partition by PipeDream's programme for the devices of a group.

    It balances the stages for ``MICRO_BATCHES_PER_STAGE`` micro-batches for each stage. Where no
    partition fits into the memory, it is the balanced one, which does not fit either. A stage has
    ``replicas`` replicas at most.
    """
    device = group.device
    devices = group.count // tensor
    smallest = Costs(
        workload,
        device,
        math.ceil(workload.batch / MOST_MICRO_BATCHES),
        tensor,
    )
    if replicas == 1:
        devices = min(devices, len(units(workload.config, workload.length)))
    windows = math.ceil(workload.batch / (MICRO_BATCHES_PER_STAGE * devices))
    layers = Costs(workload, device, windows, tensor).seconds
    sends = [send_s(workload.activation_bytes(windows), device)] * (len(layers) - 1)

    def fits(first: int, end: int) -> bool:
        return smallest.stage_bytes(Stage(first, end)) <= 1e9 * device.memory_gb

    arguments = layers, sends, devices, replicas
    best = partition(*arguments, fits) or partition(*arguments)
    assert best, "a model has three parts at least, which two devices can share"
    return best


def evaluated(workload: Workload, device: Device, plan: Plan) -> Plan:
    """Returns a plan with predictions, for the number of micro-batches that is the fastest.

    One micro-batch, as many as devices, and the doubles of both are tried.
    """
    most = min(workload.batch, MOST_MICRO_BATCHES)
    devices = plan.tensor * sum(stage.replicas for stage in plan.stages)
    plan = replace(plan, devices=devices)
    doubled = {start << i for start in (1, devices) for i in range(most.bit_length())}
    plans = [_predicted(workload, device, plan, n) for n in sorted(doubled) if n <= most]
    return min(plans, key=lambda plan: (*order(plan), plan.memory_bytes))


def _predicted(workload: Workload, device: Device, plan: Plan, micro_batches: int) -> Plan:
    """Returns a plan with predictions, for micro-batches of equal size."""
    windows = math.ceil(workload.batch / micro_batches)
    count = math.ceil(workload.batch / windows)
    costs = Costs(workload, device, windows, plan.tensor)
    stages = plan.stages
    memory = max(map(costs.stage_bytes, stages))
    computing = [sum(costs.seconds[stage.first : stage.end]) for stage in stages]
    size = workload.activation_bytes(windows)
    stations = [(computing[0], stages[0].replicas)]
    for before, stage, seconds in zip(stages, stages[1:], computing[1:], strict=False):
        links = min(before.replicas, stage.replicas)
        stations += [(send_s(size, device), links), (seconds, stage.replicas)]
    batch_s = flow_seconds(stations, count)
    all_reduces = ALL_REDUCES_PER_LAYER * workload.config.num_hidden_layers
    messages = (len(stages) - 1) * plan.tensor + all_reduces * 2 * (plan.tensor - 1)
    busy_s = count * plan.tensor * sum(computing)
    hours = workload.windows and math.ceil(workload.windows / workload.batch) * batch_s / 3600
    price, reason = device.price_per_hour, ""
    if memory > 1e9 * device.memory_gb:
        reason = f"a device needs {memory / 1e9:.1f} GB and has {device.memory_gb:.1f} GB"
    return replace(
        plan,
        reason=reason,
        micro_batches=count,
        memory_bytes=memory,
        batch_s=batch_s,
        bubble=1 - busy_s / (plan.devices * batch_s),
        moved_bytes=count * messages * size,
        windows_per_s=workload.batch / batch_s,
        hours=hours,
        cost=hours * plan.devices * price if hours and price else None,
    )
