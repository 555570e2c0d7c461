"""Optimization profiles: sets of named optimizations, each one entry of a table.

    baseline                 nothing: graph mode, float32
    mixed, xla, grappler     one optimization
    mixed+xla, …             any combination, in any order

A profile is data. What it changes is a handful of settings that the prediction reads;
no model code knows a profile's name.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

BASELINE = "baseline"
MIXED_PRECISION = {"CPU": "mixed_bfloat16", "GPU": "mixed_float16"}

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


@dataclass(frozen=True)
class Changes:
    """Everything a profile can change, with what ``baseline`` does as the default."""

    mixed: bool = False
    jit_compile: bool = False
    grappler: Mapping[str, bool] = field(default_factory=lambda: GRAPPLER_OFF)


@dataclass(frozen=True)
class Optimization:
    """One named optimization: what it does, in a line, and what it changes."""

    name: str
    help: str
    changes: Mapping[str, Any]


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
            ValueError: an unknown or a repeated name; lists the valid ones.
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

    def precision(self, device: str) -> str:
        """The Keras dtype policy on a ``CPU`` or a ``GPU``."""
        return MIXED_PRECISION[device] if self.changes.mixed else "float32"


def all_profiles() -> list[Profile]:
    """Every profile, baseline first, then by number of optimizations."""
    names = list(OPTIMIZATIONS)
    return [
        Profile(frozenset(some)) for n in range(len(names) + 1) for some in combinations(names, n)
    ]


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


class ProfileNotInForceError(RuntimeError):
    """What a profile asked for is not what runs."""


def check_in_force(profile: Profile, step: Any, precision: str) -> None:
    """Checks a traced step against its profile.

    Args:
        profile: what was asked.
        step: the concrete function that runs.
        precision: the dtype policy that was asked of the model.

    Raises:
        ProfileNotInForceError: names what is missing or too much.
    """
    import tensorflow as tf

    changes = profile.changes
    graph = step.graph.as_graph_def()
    products = {
        tf.as_dtype(node.attr["T"].type).name
        for nodes in (graph.node, *(f.node_def for f in graph.library.function))
        for node in nodes
        if node.op in ("MatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum")
    }
    options = tf.config.optimizer.get_experimental_options()
    compute_type = precision.removeprefix("mixed_")
    for what, found, asked in (
        ("compiled by XLA", step.function_def.attr["_XlaMustCompile"].b, changes.jit_compile),
        ("mixed precision", precision != "float32", changes.mixed),
        ("types of the matrix products", sorted(products), sorted({compute_type, "float32"})),
        *((f"Grappler's {name}", options.get(name), on) for name, on in changes.grappler.items()),
    ):
        if found != asked:
            raise ProfileNotInForceError(
                f"profile {profile} is not in force: {what}: {found}, expected {asked}"
            )
