"""The profile that suits a machine, where nothing was measured on it."""

from nq import processor
from nq.inference.profile import SLOW_BFLOAT16, Profile

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
