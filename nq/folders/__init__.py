"""Folders that commands write: which of them are ours, and which files in them.

A command writes to a folder that does not exist, is empty, or carries the mark of its kind: the
file ``MARK``, which names kind and version. Folders of earlier versions have no mark; their kind
is known by files that only this project writes. Every other folder is refused. In its own folder a
command removes only what the kind names, so that files of the user survive there.
"""

from nq.folders.claim import check, check_output_file, check_writable, hold, release
from nq.folders.kinds import (
    CONVERSION,
    KINDS,
    MARK,
    RUN,
    TRAINING,
    WINDOWS,
    Kind,
    kind_of,
    own_paths,
    remove,
    size,
)

__all__ = [
    "CONVERSION",
    "KINDS",
    "MARK",
    "RUN",
    "TRAINING",
    "WINDOWS",
    "Kind",
    "check",
    "check_output_file",
    "check_writable",
    "hold",
    "kind_of",
    "own_paths",
    "release",
    "remove",
    "size",
]
