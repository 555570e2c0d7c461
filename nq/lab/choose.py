"""The choice behind the profile ``auto``: the winner of the last comparison, or a default.

``nq compare`` keeps the profile to take in its folder, under a key of what it was measured for.
Without such a comparison ``default_choice`` names a profile by the processor.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from nq import extras, storage
from nq.errors import DamagedError
from nq.inference.load import tensorflow_device
from nq.inference.profile import Profile, default_choice
from nq.model.model import Model
from nq.postprocess.decision import RULES
from nq.questions import Questions
from nq.runs.job import Job
from nq.runs.measure import machine

COMPARED = "compare.json"  # in the folder of a comparison
FIRST_EXAMPLES = 10
PAGE_TOKENS = 3000
"""Questions are about whole pages if the first ones have so many tokens on average."""


def with_profile(job: Job, questions: Questions) -> tuple[Job, str]:
    """Returns a job with the profile to take, and why in words.

    ``questions`` need not be opened, since only the first ones are read.
    """
    device = tensorflow_device(job.compute.threads) if extras.has_gpu() else "CPU"
    try:
        *_, profile, why = choices(job.model, questions, job.root, device)
    except ValueError:  # a file that has no records, of which the run says more
        return replace(job, profile=default_choice(device)), ""
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
            _ = values["key"]
            profile = Profile(values["take"])
            yield file, profile, values


def comparison_key(model: Model, questions: Questions) -> str:
    """Returns a digest of what a comparison depends on: model, windows, rule and processor."""
    digests = [one.digest for one in model.parts]
    shape = [model.windows.max_seq_length, may_prune(model, questions)]
    return storage.digest_json([digests, shape, model.decision.rule, machine()])[:16]


def may_prune(model: Model, questions: Questions) -> bool:
    """Returns whether ``prune`` suits questions: their pages are long, the rule ranks blocks.

    Of the passages of a retriever all are read, however many there are.
    """
    first = questions.first(FIRST_EXAMPLES)
    if any(example.passages is not None for example in first):
        return False
    tokens = [len(example.tokens) for example in first]
    return RULES[model.decision.rule].ranks and sum(tokens) >= PAGE_TOKENS * max(1, len(tokens))
