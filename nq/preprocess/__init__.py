"""Preprocessing: questions and pages become windows of piece ids.

The stages are plain functions: contexts, windows, features, targets. ``prepare`` runs them over
files and keeps the windows in a folder; ``nq.beam`` has them as Beam transforms.
"""

import os
from pathlib import Path


def python_path() -> str:
    """Returns a ``PYTHONPATH`` with which a child process finds this package."""
    here = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
