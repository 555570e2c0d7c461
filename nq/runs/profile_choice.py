"""The choice behind the profile ``auto``: the winner of the last comparison, or a default.

``nq compare`` keeps the profile to take in its folder, under a key of what it was measured for.
Without such a comparison ``default_choice`` names a profile by the processor.
"""

import contextlib
import hashlib
from itertools import islice
from pathlib import Path

import orjson

from nq import extras, processor, storage
from nq.errors import DamagedError
from nq.inference.profile import SLOW_BFLOAT16, Profile
from nq.model.folder import weights_digest
from nq.model.runtime import import_tensorflow
from nq.model.spec import ModelSpec
from nq.postprocess.decision import RULES
from nq.runs.job import Job
from nq.runs.measure import machine

COMPARED = "compare.json"  # in the folder of a comparison
FIRST_EXAMPLES, PAGE_TOKENS = 10, 3000
"""A job is one of whole pages if its first examples have so many tokens on average."""
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


def choose_profile(job: Job) -> tuple[str, str]:
    """Returns the profile for a job whose own one is ignored, and which it is and why in words."""
    prune = may_prune(job)
    if winner := last_winner(job.root, comparison_key(job.model, prune)):
        folder, profile = winner
        return profile, f"profile auto: {profile}, the profile to take of nq compare in {folder}"
    profile = default_choice(_device(job.compute.threads), prune)
    why = f"the default for this machine, since {job.root} has no nq compare of such a run"
    return profile, f"profile auto: {profile}, {why}"


def _device(threads: int | None) -> str:
    """Returns the device that TensorFlow uses, which is imported where there is a GPU."""
    if not extras.has_gpu():
        return "CPU"
    import_tensorflow(threads)
    from nq.inference.engines.tensorflow import device

    return device()


def last_winner(root: Path, key: str) -> tuple[Path, str] | None:
    """Returns folder and profile of the last complete comparison in ``root`` under a key."""
    winners = list[tuple[float, Path, str]]()
    for file in root.glob(f"*/{COMPARED}"):
        # a file may be damaged or of others
        with contextlib.suppress(OSError, DamagedError, LookupError, ValueError):
            values = storage.read_json(file)
            profile = Profile.parse(values["take"])
            if values["runs"][0]["key"] == key and not profile.missing():
                winners.append((file.stat().st_mtime, file.parent, str(profile)))
    return max(winners)[1:] if winners else None


def comparison_key(model: ModelSpec, may_prune: bool) -> str:
    """Returns a digest of what a comparison is for: model, window length, rule and processor."""
    digests = [weights_digest(one.folder) for one in model.models]
    shape = [model.windows.max_seq_length, may_prune]
    values = [digests, shape, model.decision.rule, machine()]
    return hashlib.sha256(orjson.dumps(values)).hexdigest()[:16]


def default_choice(device: str, prune: bool = False) -> str:
    """Returns the first candidate that is installed and fast here; ``prune`` is added on request.

    On a CPU without fast bfloat16 that is one without ``mixed``.
    """
    has_mixed = device != "CPU" or processor.has_fast_bfloat16()
    named = map(Profile.parse, CANDIDATES[device])
    usable = (one for one in named if not one.missing() and (has_mixed or not one.changes.mixed))
    return str(Profile(next(usable).names | ({"prune"} if prune else set())))


def without_gain(profile: str, device: str) -> str:
    """Returns why a profile is usually not fast on a device of this machine, and what is.

    It is empty if all its optimizations may gain.
    """
    given, is_slow = Profile.parse(profile), device == "CPU" and not processor.has_fast_bfloat16()
    reasons = given.no_gain([device, *([SLOW_BFLOAT16] if is_slow else [])])
    if not reasons:
        return ""
    texts = (f"{name} usually gains nothing here ({why})" for name, why in reasons.items())
    choice = default_choice(device, given.changes.prune)
    return f"{'; '.join(texts)}; the default of --profile auto is {choice}"


def may_prune(job: Job) -> bool:
    """Returns whether ``prune`` suits a job: its pages are long, its decision has a margin."""
    tokens = [len(example.tokens) for example in islice(job.examples(), FIRST_EXAMPLES)]
    return RULES[job.model.decision.rule].ranks and sum(tokens) >= PAGE_TOKENS * max(1, len(tokens))
