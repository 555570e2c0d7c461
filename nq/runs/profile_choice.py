"""The choice behind the profile ``auto``: the winner of the last comparison, or a default.

``nq compare`` keeps the profile to take in its folder, under a key of what it was measured for.
Without such a comparison ``default_choice`` names a profile by the processor.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from nq import extras, processor, storage
from nq.errors import DamagedError
from nq.inference.load import tensorflow_device
from nq.inference.profile import SLOW_BFLOAT16, Profile
from nq.model.model import Model
from nq.postprocess.decision import RULES
from nq.questions import Questions
from nq.runs.config import AUTO
from nq.runs.job import Job
from nq.runs.measure import machine

COMPARED = "compare.json"  # in the folder of a comparison
FIRST_EXAMPLES, PAGE_TOKENS = 10, 3000
"""A job is one of whole pages if its first examples have ``PAGE_TOKENS`` or more on average."""
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
"""By device, those that are mostly the fastest first."""


def with_profile(job: Job, questions: Questions) -> tuple[Job, str]:
    """Returns a job with its profile, which is chosen if it is ``auto``, and why in words."""
    if job.profile != AUTO:
        return job, ""
    device = tensorflow_device(job.compute.threads) if extras.has_gpu() else "CPU"
    *_, profile, why = choices(job.model, questions, job.root, device)
    return replace(job, profile=profile), f"profile auto: {profile}, {why}"


def choices(model: Model, questions: Questions, root: Path, device: str) -> tuple[str, str, str]:
    """Returns the default profile for a model, the profile to take and the reason.

    It is the winner of the last comparison in ``root``; one without today's default is ignored.
    """
    key = comparison_key(model, questions)
    default = default_choice(device, may_prune(model, questions))
    winners = [
        (file.stat().st_mtime, file.parent, str(profile))
        for file, profile, values in _verdicts(root)
        if values["key"] == key and default in values["profiles"] and not profile.missing()
    ]
    if winners:
        *_, folder, profile = max(winners)
        return default, profile, f"the profile to take of nq compare in {folder}"
    why = "the default for this machine; nq compare finds the fastest for your data"
    return default, default, why


def forget(root: Path) -> dict[str, str]:
    """Removes the recommended profiles of the comparisons in ``root``; returns them by folder."""
    forgotten = dict[str, str]()
    for file, profile, values in _verdicts(root):
        with storage.hold_marked(file.parent):
            storage.write_json(file, {**values, "take": ""})
        forgotten[str(file.parent)] = str(profile)
    return forgotten


def _verdicts(root: Path) -> Iterator[tuple[Path, Profile, dict[str, Any]]]:
    """Yields file, recommended profile and content of each comparison in ``root`` that has one."""
    for file in root.glob(f"*/{COMPARED}"):
        # a file may be damaged, of others or of an earlier version
        with contextlib.suppress(OSError, DamagedError, LookupError, ValueError):
            values = storage.read_json(file)
            _, profile = values["key"], Profile(values["take"])
            yield file, profile, values


def comparison_key(model: Model, questions: Questions) -> str:
    """Returns a digest of what a comparison depends on: model, windows, rule and processor."""
    digests = [one.digest for one in model.parts]
    shape = [model.windows.max_seq_length, may_prune(model, questions)]
    return storage.digest_json([digests, shape, model.decision.rule, machine()])[:16]


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
    is_slow = device == "CPU" and not processor.has_fast_bfloat16()
    reasons = profile.no_gain([device, *([SLOW_BFLOAT16] if is_slow else [])])
    if not reasons:
        return ""
    texts = (f"{name} usually gains nothing here ({why})" for name, why in reasons.items())
    choice = default_choice(device, profile.changes.prune)
    return f"{'; '.join(texts)}; the default of --profile auto is {choice}"


def may_prune(model: Model, questions: Questions) -> bool:
    """Returns whether ``prune`` suits questions: their pages are long, the rule ranks blocks.

    Of the passages of a retriever all are read, however many there are.
    """
    first = questions.first(FIRST_EXAMPLES)
    if any(example.passages is not None for example in first):
        return False
    tokens = [len(example.tokens) for example in first]
    return RULES[model.decision.rule].ranks and sum(tokens) >= PAGE_TOKENS * max(1, len(tokens))
