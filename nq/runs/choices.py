"""The choices of ``--profile auto`` that are kept for later runs, in the user's cache folder."""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
import os
import platform
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import orjson

from nq import __version__, storage
from nq.errors import DamagedError
from nq.model.folder import weights_digest
from nq.runs.job import Job
from nq.runs.machine import machine

log = logging.getLogger(__name__)

PAGES = 20
"""Whole pages that show what pruning costs in answers; of a smaller job, all pages do."""
DISTRIBUTIONS = (
    *("keras", "numpy", "tensorflow", "tensorflow-cpu"),
    *("openvino", "nncf", "onnx", "onnxruntime", "tf2onnx"),
)
"""Distributions with whose versions the speed may change, as far as they are installed."""


@dataclass(frozen=True)
class Choice:
    """A profile that trials have chosen; ``str`` gives it in words.

    Args:
        profile: its name.
        pages: on how many whole pages pruning was tried.
        windows: digest of the windows of the job for which it was chosen.
        instances: of one thread each, if these are faster than one process.
    """

    profile: str
    pages: int = 0
    windows: str = ""
    instances: int | None = None

    def __str__(self) -> str:
        by = "" if self.instances is None else f", {self.instances} instances of 1 thread"
        return f"{self.profile}{by}"

    def of(self, job: Job) -> Job:
        """Returns a job with what was chosen."""
        if self.instances is None:
            return replace(job, profile=self.profile)
        return replace(job, profile=self.profile, instances=self.instances, threads=1)


def cache_file() -> Path:
    """Returns the file that has the choices of this user's earlier runs."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "nq" / "profiles.json"


def key(job: Job, device: str) -> str:
    """Returns a digest of everything that a choice depends on, the job's data excepted.

    Args:
        job: with its model.
        device: ``CPU`` or ``GPU``.
    """
    depends = [
        __version__,
        _versions(),
        [platform.node(), machine(), device],
        [weights_digest(model.folder) for model in job.model.models],
        job.model.windows.max_seq_length,
        job.batch_size,
        job.model.decision.rule,
        [job.instances, job.threads],
    ]
    return hashlib.sha256(orjson.dumps(depends, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def _versions() -> dict[str, str]:
    installed = {d.name.lower(): d.version for d in importlib.metadata.distributions() if d.name}
    return {name: installed[name] for name in DISTRIBUTIONS if name in installed}


def read(name: str, windows: str) -> Choice | None:
    """Returns the choice under a key; ``None`` if there is none, or it is damaged.

    One from few pages is for the same windows only.

    Args:
        name: the key.
        windows: digest of the windows of the job that needs a choice.
    """
    try:
        choice = Choice(**storage.read_json(cache_file())[name])
    except (OSError, DamagedError, LookupError, TypeError):
        return None
    return choice if choice.pages >= PAGES or choice.windows == windows else None


def write(name: str, choice: Choice) -> bool:
    """Keeps a choice; returns whether it could be written.

    A failure costs no more than another trial next time.
    """
    file = cache_file()
    try:
        others = storage.read_json(file)
    except (OSError, DamagedError):
        others = {}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        storage.write_json(file, {**others, name: asdict(choice)})
    except OSError as error:
        log.debug("the choice of a profile cannot be stored: %s", error)
        return False
    return True
