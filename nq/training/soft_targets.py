"""A teacher's log probabilities of training windows: computed once, kept on disk and in memory.

request.json       what the log probabilities depend on; with another request nothing is reused
part-000000.npz …  ``PART_WINDOWS`` consecutive windows each, written completely or not at all

A computation that is killed continues with the first part that is missing. A part that is damaged
is computed again.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nq import storage
from nq.errors import DamagedError
from nq.records import AnswerType, Columns, FloatArray, IntArray
from nq.training.windows import TrainingWindows

log = logging.getLogger(__name__)

REQUEST = "request.json"
WINDOWS = "windows"
"""Array of a part: its first window, and the one behind its last."""
PART_WINDOWS = 512


@dataclass(frozen=True, eq=False)
class SoftTargets:
    """The teacher's log probabilities of the windows of a student, in memory.

    They are float16: the large probabilities have logarithms near 0, where it is precise, and no
    probability differs by more than 0.0002.

    Args:
        first: ``[N + 1]`` index of each window's first piece, then ``P``.
        start_logits, end_logits: ``[P]`` for all pieces of all windows; -inf for a separator that
            the teacher does not have.
        type_logits: ``[N, 5]``.
    """

    first: IntArray
    start_logits: FloatArray
    end_logits: FloatArray
    type_logits: FloatArray

    @classmethod
    def empty(cls, windows: TrainingWindows) -> SoftTargets:
        """Returns arrays for ``fill``."""
        first = np.concatenate([[0], np.cumsum(windows.n_pieces, dtype=np.int64)])
        sizes = (first[-1], first[-1], (len(windows), len(AnswerType)))
        return cls(first, *(np.empty(size, np.float16) for size in sizes))

    def fill(self, part: Columns, rows: slice) -> None:
        """Copies the log probabilities of the windows ``rows``."""
        pieces = slice(self.first[rows.start], self.first[rows.stop])
        self.start_logits[pieces] = part["start_logits"]
        self.end_logits[pieces] = part["end_logits"]
        self.type_logits[rows] = part["type_logits"]

    def batch(self, rows: IntArray, length: int) -> dict[str, FloatArray]:
        """Returns the log probabilities of the windows ``rows`` in float32, -inf for padding.

        They are ``start_logits``, ``end_logits`` ``[B, length]`` and ``type_logits`` ``[B, 5]``.
        """
        piece = self.first[rows, None] + np.arange(length)[None]
        inside = piece < self.first[rows + 1, None]
        piece = np.where(inside, piece, 0)
        return {
            "start_logits": np.where(inside, self.start_logits[piece], -np.inf).astype(np.float32),
            "end_logits": np.where(inside, self.end_logits[piece], -np.inf).astype(np.float32),
            "type_logits": self.type_logits[rows].astype(np.float32),
        }


def soft_targets(
    windows: TrainingWindows,
    folder: Path,
    request: Mapping[str, Any],
    compute: Callable[[slice], Columns],
) -> SoftTargets:
    """Returns the log probabilities of all windows; missing ones are computed.

    Args:
        windows: windows of the student.
        folder: ``training/teacher`` in the folder of a training; it is created.
        request: everything that the result depends on besides the windows, as JSON values.
        compute: returns the columns of ``SoftTargets.fill`` for consecutive windows.
    """
    from tqdm import tqdm

    request, stored = {**request, WINDOWS: windows.digest()}, None
    try:
        stored = storage.read_json(folder / REQUEST)
    except FileNotFoundError:
        pass
    except DamagedError as error:
        log.warning("%s; the teacher computes all windows again", error)
    if stored != json.loads(json.dumps(request)):
        training = folder.parent.parent
        own = storage.own_paths(training, storage.TRAINING, f"{folder.relative_to(training)}/")
        storage.remove(own)
        folder.mkdir(parents=True, exist_ok=True)
        storage.write_json(folder / REQUEST, request)
    result, total = SoftTargets.empty(windows), len(windows)
    with tqdm(desc="teacher", unit=" windows", total=total, disable=None) as bar:
        for number, start in enumerate(range(0, total, PART_WINDOWS)):
            path = folder / f"part-{number:06d}.npz"
            rows = slice(start, min(start + PART_WINDOWS, total))
            try:
                part = storage.read_arrays(path)
                if part[WINDOWS].tolist() != [rows.start, rows.stop]:
                    raise DamagedError(f"{path} is damaged: expected the windows from {start} on")
                result.fill(part, rows)
            except (OSError, DamagedError, LookupError, ValueError) as error:
                if not isinstance(error, FileNotFoundError):
                    log.warning("%s; the teacher computes it again", error)
                started = time.perf_counter()
                part = compute(rows)
                storage.write_arrays(path, {WINDOWS: np.array([rows.start, rows.stop]), **part})
                result.fill(part, rows)
                if bar.disable:
                    speed = (rows.stop - rows.start) / (time.perf_counter() - started)
                    log.info("teacher: %d of %d windows, %.1f windows/s", rows.stop, total, speed)
            bar.update(rows.stop - rows.start)
    return result
