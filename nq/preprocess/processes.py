"""Processes of ours: how they find this package."""

from __future__ import annotations

import os
from pathlib import Path


def python_path() -> str:
    """``PYTHONPATH`` with the folder of this package in front."""
    here = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
