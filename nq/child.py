"""What child processes of this project need."""

from __future__ import annotations

import os
from pathlib import Path


def python_path() -> str:
    """Returns a ``PYTHONPATH`` with which a child process finds this package."""
    here = str(Path(__file__).resolve().parents[1])
    return os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
