"""Optimization profiles: sets of named optimizations, each one entry of a table.

    baseline                 no optimization: graph mode, float32
    mixed, xla, grappler …   one optimization
    mixed+xla, …             any possible combination, in any order

A profile is data: it changes a few settings that inference reads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from nq import extras, processor
from nq.errors import Error, check_argument
from nq.text import did_you_mean

BASELINE = "baseline"
DEFAULT_PROFILE = "grappler"
COMPUTE_TYPE = {"CPU": "bfloat16", "GPU": "float16"}
SLOW_BFLOAT16 = "a CPU without fast bfloat16"
THESIS = ("mixed", "xla", "grappler")
TENSORFLOW = "tensorflow"
OPENVINO = "openvino"
ONNX = "onnx"
ENGINE_EXTRAS = {TENSORFLOW: "cpu", OPENVINO: "openvino", ONNX: "onnx"}
"""Maps each engine to the extra that installs its packages."""
BASELINE_HELP = "graph mode in float32, no compiler, TensorFlow's graph rewrites disabled"

CANDIDATES = {
    "CPU": (
        "mixed+buckets+openvino",
        "buckets+openvino",
        "mixed+grappler+frozen+buckets",
        "grappler+frozen+buckets",
        "mixed+grappler+buckets",
        "grappler+buckets",
    ),
    "GPU": (
        "mixed+xla+grappler+buckets",
        "mixed+xla+grappler+frozen+buckets",
        "mixed+grappler+buckets",
        "xla+grappler+buckets",
        "grappler+buckets",
    ),
}
"""By device, the profiles that are mostly the fastest first."""

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
    """All settings that a profile can change; ``baseline`` has the defaults."""

    mixed: bool = False
    jit_compile: bool = False
    grappler: Mapping[str, bool] = field(default_factory=lambda: GRAPPLER_OFF)
    frozen: bool = False
    buckets: bool = False
    prune: bool = False
    rescore: bool = False
    int8: bool = False
    engine: str = TENSORFLOW


@dataclass(frozen=True)
class Optimization:
    """One optimization: its effect in one line, and the settings that it changes.

    Args:
        against: optimizations that it cannot be combined with, each with the reason.
        needs: one of these must be in the profile too, for the reason in ``why``.
        needs_ranking: whether it suits only decision rules that rank the blocks of a page.
        no_gain: where it usually makes nothing faster, each with the reason: beside another
            optimization, on a ``CPU``, or on ``SLOW_BFLOAT16``.
    """

    help: str
    changes: Mapping[str, Any]
    against: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    why: str = ""
    needs_ranking: bool = False
    no_gain: Mapping[str, str] = field(default_factory=dict)


def _other_engine(title: str) -> dict[str, str]:
    effects = {"xla": "compiler", "grappler": "graph rewrites", "frozen": "freezing"}
    return {
        name: f"{title} runs the model, so that TensorFlow's {effect} would have no effect"
        for name, effect in effects.items()
    }


OPTIMIZATIONS = {
    "mixed": Optimization(
        "computes in float16 on a GPU and in bfloat16 on a CPU; weights and logits in float32",
        {"mixed": True},
        no_gain={
            SLOW_BFLOAT16: "this processor has no fast products in bfloat16",
            "int8": "the products of int8 are in 8 bits",
        },
    ),
    "xla": Optimization(
        "compiles the whole step with XLA; partial batches are padded",
        {"jit_compile": True},
        no_gain={"CPU": "XLA is made for GPUs"},
    ),
    "grappler": Optimization(
        "enables TensorFlow's graph rewrites (Grappler)", {"grappler": GRAPPLER_ON}
    ),
    "frozen": Optimization(
        "stores the weights as constants of the compute type, so that no batch casts them",
        {"frozen": True},
    ),
    "buckets": Optimization(
        "batches windows of similar length, by number of pieces; no mask where all are full",
        {"buckets": True},
    ),
    "prune": Optimization(
        "computes only the windows of the blocks that rank best by their words and place; answers "
        "may change",
        {"prune": True},
        needs_ranking=True,
    ),
    "openvino": Optimization(
        "runs the model in OpenVINO; with mixed in bfloat16",
        {"engine": OPENVINO},
        against=_other_engine("OpenVINO"),
    ),
    "onnx": Optimization(
        "runs the model in ONNX Runtime",
        {"engine": ONNX},
        against={
            **_other_engine("ONNX Runtime"),
            "openvino": "only one engine can run the model",
            "mixed": "ONNX Runtime has no bfloat16 for a CPU",
        },
    ),
    "int8": Optimization(
        "computes matrix products in 8 bits; with openvino calibrated on windows of the data, "
        "with onnx scaled per batch, which changes far more answers",
        {"int8": True},
        needs=(OPENVINO, ONNX),
        why="TensorFlow has no fast 8-bit products",
    ),
    "rescore": Optimization(
        "computes the windows of an example again in float32 where its decision was close",
        {"rescore": True},
        needs=("mixed", "int8"),
        why="otherwise everything is computed in float32 already",
        needs_ranking=True,
    ),
}


@dataclass(frozen=True, init=False)
class Profile:
    """A set of optimizations, by a text such as ``mixed+xla`` or by their names.

    >>> Profile("xla+mixed") == Profile({"mixed", "xla"}), str(Profile("xla+mixed"))
    (True, 'mixed+xla')
    """

    names: frozenset[str]

    def __init__(self, names: str | Collection[str] = BASELINE) -> None:
        """Checks that there are such optimizations, and that they can be combined."""
        are_texts = isinstance(names, Collection) and all(isinstance(one, str) for one in names)
        check_argument(are_texts, "profile", names, "a text such as 'mixed+xla', or nq.Profile")
        parts = [one.strip() for one in names.split("+")] if isinstance(names, str) else [*names]
        parts = [] if parts == [BASELINE] else parts
        text = names if isinstance(names, str) else "+".join(sorted(names))
        valid = f"valid are {BASELINE}, or {', '.join(OPTIMIZATIONS)} joined by '+'"
        for part in parts:
            if part == BASELINE:
                raise ValueError(f"profile {text!r}: {BASELINE} stands alone; {valid}")
            if part not in OPTIMIZATIONS:
                like = did_you_mean(part, (*OPTIMIZATIONS, BASELINE))
                raise ValueError(f"profile {text!r}: unknown optimization {part!r}{like}; {valid}")
            if parts.count(part) > 1:
                raise ValueError(f"profile {text!r}: {part!r} is named twice; {valid}")
        if impossible := _impossible(frozenset(parts)):
            raise ValueError(f"profile {text!r}: {impossible}")
        object.__setattr__(self, "names", frozenset(parts))

    @classmethod
    def of(cls, profile: Profile | str) -> Profile:
        """Returns a profile given as such or as text."""
        return profile if isinstance(profile, Profile) else cls(profile)

    def __str__(self) -> str:
        return "+".join(name for name in OPTIMIZATIONS if name in self.names) or BASELINE

    @property
    def changes(self) -> Changes:
        """The settings under this profile."""
        changes = Changes()
        for name in self.names:
            changes = dataclasses.replace(changes, **OPTIMIZATIONS[name].changes)
        return changes

    @property
    def needs_ranking(self) -> tuple[str, ...]:
        """The optimizations of this profile that use the decision margin."""
        return tuple(n for n, o in OPTIMIZATIONS.items() if n in self.names and o.needs_ranking)

    @property
    def required_extras(self) -> tuple[str, ...]:
        """The extras that install the packages that this profile needs."""
        changes = self.changes
        engine = ENGINE_EXTRAS[changes.engine]
        calibrates = changes.int8 and changes.engine == OPENVINO
        return (engine, "int8") if calibrates else (engine,)

    def missing(self) -> tuple[str, ...]:
        """Returns the packages that this profile needs and that are not installed."""
        return tuple(name for extra in self.required_extras for name in extras.missing(extra))

    def require(self) -> None:
        """Raises an error if a package that this profile needs is not installed."""
        extras.require(*self.required_extras)

    def precision(self, device: str) -> str:
        """Returns the compute type on a ``CPU`` or a ``GPU``."""
        return COMPUTE_TYPE[device] if self.changes.mixed else "float32"

    def policy(self, device: str) -> str:
        """Returns the Keras dtype policy; weights are float32 unless they are frozen."""
        precision = self.precision(device)
        if precision == "float32" or self.changes.engine != TENSORFLOW:
            return "float32"
        return precision if self.changes.frozen else f"mixed_{precision}"


def _impossible(names: frozenset[str]) -> str:
    """Returns why the optimizations cannot be combined; empty if they can."""
    for name in names:
        optimization = OPTIMIZATIONS[name]
        for other in sorted(names & optimization.against.keys()):
            return f"{other} and {name} cannot be combined: {optimization.against[other]}"
        if optimization.needs and not names & set(optimization.needs):
            return f"{name} needs {' or '.join(optimization.needs)}: {optimization.why}"
    return ""


def profiles(names: Sequence[str] = tuple(OPTIMIZATIONS)) -> list[Profile]:
    """Returns all possible profiles of these optimizations, the smallest first."""
    some = (frozenset(s) for n in range(len(names) + 1) for s in combinations(names, n))
    return [Profile(names) for names in some if not _impossible(names)]


def reader_profile(on_gpu: bool | None = None) -> Profile:
    """Returns the default for questions in memory: float32, without TensorFlow on a CPU.

    It is the first that is installed; if none is, its packages are to be installed.
    """
    on_gpu = extras.has_gpu() if on_gpu is None else on_gpu
    if on_gpu:
        return Profile(DEFAULT_PROFILE)
    candidates = [Profile(name) for name in (OPENVINO, ONNX, DEFAULT_PROFILE)]
    return next((one for one in candidates if not one.missing()), candidates[0])


def default_choice(device: str, prune: bool = False, mixed: bool = True) -> str:
    """Returns the first candidate that is installed and fast here; ``prune`` is added on request.

    It is one without ``mixed`` on request, and on a CPU without fast bfloat16. If none is
    installed, it is the fastest, whose packages are to be installed.
    """
    has_mixed = mixed and (device != "CPU" or processor.has_fast_bfloat16())
    named = map(Profile, CANDIDATES[device])
    fast = [one for one in named if has_mixed or not one.changes.mixed]
    chosen = next((one for one in fast if not one.missing()), fast[0])
    return str(Profile(chosen.names | ({"prune"} if prune else set())))


def without_gain(profile: Profile, device: str) -> str:
    """Returns why a profile is usually not fast on a device of this machine, and what is.

    It is empty if all its optimizations may gain.
    """
    places = {*profile.names, device}
    if device == "CPU" and not processor.has_fast_bfloat16():
        places.add(SLOW_BFLOAT16)
    reasons = {
        name: why
        for name, optimization in OPTIMIZATIONS.items()
        for place, why in optimization.no_gain.items()
        if name in profile.names and place in places
    }
    if not reasons:
        return ""
    texts = (f"{name} usually gains nothing here ({why})" for name, why in reasons.items())
    choice = default_choice(device, profile.changes.prune)
    return f"{'; '.join(texts)}; the default of --profile auto is {choice}"


def describe() -> str:
    """Returns the table of optimizations for ``--help``, one line each."""
    rows = {BASELINE: BASELINE_HELP, **{name: o.help for name, o in OPTIMIZATIONS.items()}}
    return "\n".join(f"  {name:<10}{text}" for name, text in rows.items())


class ProfileNotInForceError(Error):
    """What runs is not what the profile requires."""

    def __init__(self, profile: Profile, what: str, actual: object, expected: object) -> None:
        super().__init__(
            f"profile {profile} is not in force: {what}: {actual}, expected {expected}"
        )
