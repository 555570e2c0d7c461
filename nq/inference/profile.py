"""Optimization profiles: sets of named optimizations, each one entry of a table.

    baseline                 nothing: graph mode, float32
    mixed, xla, grappler …   one optimization
    mixed+xla, …             any combination that makes sense, in any order

A profile is data. What it changes is a handful of settings that the prediction reads;
no model code knows a profile's name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from nq.errors import Error

BASELINE = "baseline"
COMPUTE_TYPE = {"CPU": "bfloat16", "GPU": "float16"}
THESIS = ("mixed", "xla", "grappler")

GRAPPLER_OFF = {"disable_meta_optimizer": True}
GRAPPLER_ON = {
    "disable_meta_optimizer": False,
    "arithmetic_optimization": True,
    "constant_folding": True,
    "dependency_optimization": True,
    "function_optimization": True,
    "implementation_selector": True,
    "layout_optimizer": True,
    "loop_optimization": True,
    "remapping": True,
    "shape_optimization": True,
}


TENSORFLOW, OPENVINO, ONNX = "tensorflow", "openvino", "onnx"
PACKAGES = {OPENVINO: ("openvino", "nncf"), ONNX: ("onnx", "onnxruntime", "tf2onnx")}
"""What an engine needs installed, as the extra of its name does."""


@dataclass(frozen=True)
class Changes:
    """Everything a profile can change, with what ``baseline`` does as the default."""

    mixed: bool = False
    jit_compile: bool = False
    grappler: Mapping[str, bool] = field(default_factory=lambda: GRAPPLER_OFF)
    frozen: bool = False
    buckets: bool = False
    refine: bool = False
    recheck: bool = False
    int8: bool = False
    engine: str = TENSORFLOW


@dataclass(frozen=True)
class Optimization:
    """One named optimization.

    Args:
        name: as in a profile.
        help: what it does, in a line.
        changes: the settings that it changes.
        against: optimizations that it cannot be combined with, and why.
        needs: it makes sense with one of these only, for the reason in ``why``.
    """

    name: str
    help: str
    changes: Mapping[str, Any]
    against: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    why: str = ""


def _other_engine(title: str) -> dict[str, str]:
    return {
        name: f"{title} runs the graph, so that TensorFlow's {what} never sees it"
        for name, what in (
            ("xla", "compiler"),
            ("grappler", "graph rewrites"),
            ("frozen", "freezing"),
        )
    }


OPTIMIZATIONS = {
    o.name: o
    for o in (
        Optimization(
            "mixed",
            "computes in float16 on a GPU, in bfloat16 on a CPU; weights and logits float32",
            {"mixed": True},
        ),
        Optimization(
            "xla",
            "compiles the whole step with XLA; partial batches are padded",
            {"jit_compile": True},
        ),
        Optimization(
            "grappler",
            "turns TensorFlow's graph rewrites on: "
            + ", ".join(name for name, on in GRAPPLER_ON.items() if on),
            {"grappler": GRAPPLER_ON},
        ),
        Optimization(
            "frozen",
            "weights become constants in the type that is computed in; nothing is cast per batch",
            {"frozen": True},
        ),
        Optimization(
            "buckets",
            "windows of like length share a batch, of so many pieces rather than windows; no mask "
            "where every window is full",
            {"buckets": True},
        ),
        Optimization(
            "refine",
            "reads of each page only those windows that may change its answer",
            {"refine": True},
        ),
        Optimization(
            "openvino",
            "OpenVINO computes the model; with mixed in bfloat16",
            {"engine": OPENVINO},
            against=_other_engine("OpenVINO"),
        ),
        Optimization(
            "onnx",
            "ONNX Runtime computes the model",
            {"engine": ONNX},
            against={
                **_other_engine("ONNX Runtime"),
                "openvino": "one engine computes the model",
                "mixed": "ONNX Runtime has no bfloat16 for a CPU",
            },
        ),
        Optimization(
            "int8",
            "matrix products in 8 bits: with openvino calibrated on windows of the data, with onnx "
            "scaled on the fly",
            {"int8": True},
            needs=(OPENVINO, ONNX),
            why="TensorFlow has no fast 8-bit products",
        ),
        Optimization(
            "recheck",
            "answers that were a close call are decided again by all windows in float32",
            {"recheck": True},
            needs=("mixed", "int8"),
            why="all is computed in float32 anyway",
        ),
    )
}
BASELINE_HELP = "graph mode in float32, no compiler, TensorFlow's graph rewrites off"


@dataclass(frozen=True)
class Profile:
    """A set of optimizations; prints as it is parsed.

    >>> str(Profile.parse("xla+mixed"))
    'mixed+xla'
    """

    names: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, text: str) -> Profile:
        """The profile that ``text`` names.

        Raises:
            ValueError: an unknown or a repeated name; lists the valid ones. Or names that
                cannot be combined; tells why.
        """
        parts = [part.strip() for part in text.split("+")]
        if parts == [BASELINE]:
            return cls()
        valid = f"valid are {BASELINE}, or {', '.join(OPTIMIZATIONS)} joined by '+'"
        for part in parts:
            if part == BASELINE:
                raise ValueError(f"profile {text!r}: {BASELINE} stands alone; {valid}")
            if part not in OPTIMIZATIONS:
                raise ValueError(f"profile {text!r}: unknown optimization {part!r}; {valid}")
            if parts.count(part) > 1:
                raise ValueError(f"profile {text!r}: {part!r} is named twice; {valid}")
        impossible = _impossible(frozenset(parts))
        if impossible:
            raise ValueError(f"profile {text!r}: {impossible}")
        return cls(frozenset(parts))

    def __str__(self) -> str:
        return "+".join(name for name in OPTIMIZATIONS if name in self.names) or BASELINE

    @property
    def changes(self) -> Changes:
        """The settings of this profile."""
        changes = Changes()
        for name in self.names:
            changes = dataclasses.replace(changes, **OPTIMIZATIONS[name].changes)
        return changes

    def missing(self) -> list[str]:
        """The packages that it needs and that are not installed."""
        needed = PACKAGES.get(self.changes.engine, ())
        return [name for name in needed if importlib.util.find_spec(name) is None]

    def precision(self, device: str) -> str:
        """The type that is computed in, on a ``CPU`` or a ``GPU``."""
        return COMPUTE_TYPE[device] if self.changes.mixed else "float32"

    def policy(self, device: str) -> str:
        """The Keras dtype policy: weights stay float32 unless they are frozen."""
        precision = self.precision(device)
        if precision == "float32" or self.changes.engine != TENSORFLOW:
            return "float32"
        return precision if self.changes.frozen else f"mixed_{precision}"


def _impossible(names: frozenset[str]) -> str:
    """Why the optimizations cannot be combined; empty if they can."""
    for name in names:
        optimization = OPTIMIZATIONS[name]
        for other in sorted(names & optimization.against.keys()):
            return f"{other} and {name} cannot be combined: {optimization.against[other]}"
        if optimization.needs and not names & set(optimization.needs):
            return f"{name} needs {' or '.join(optimization.needs)}: {optimization.why}"
    return ""


def profiles(names: Sequence[str] = tuple(OPTIMIZATIONS)) -> list[Profile]:
    """Every profile of those optimizations, baseline first, then by their number."""
    some = (frozenset(s) for n in range(len(names) + 1) for s in combinations(names, n))
    return [Profile(names) for names in some if not _impossible(names)]


def describe() -> str:
    """The table for ``--help``: a line for each name."""
    rows = {BASELINE: BASELINE_HELP, **{o.name: o.help for o in OPTIMIZATIONS.values()}}
    return "\n".join(f"  {name:<10}{text}" for name, text in rows.items())


@contextlib.contextmanager
def grappler_options(options: Mapping[str, bool]) -> Iterator[None]:
    """Owns TensorFlow's process-wide rewrite options while a profile runs; restores them."""
    import tensorflow as tf

    optimizer = tf.config.optimizer
    before = optimizer.get_experimental_options()
    optimizer.set_experimental_options(dict(options))
    try:
        yield
    finally:
        optimizer.set_experimental_options({name: before.get(name) for name in options})


class ProfileNotInForceError(Error):
    """What a profile asked for is not what runs."""

    def __init__(self, profile: Profile, what: str, found: object, asked: object) -> None:
        super().__init__(f"profile {profile} is not in force: {what}: {found}, expected {asked}")
