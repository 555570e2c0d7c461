"""How child processes of Python start: all alike."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

ROOT = str(Path(__file__).resolve().parents[1])  # from where this package is imported


def python(*arguments: str, **variables: str) -> dict[str, Any]:
    """Returns command and environment of a Python process, as ``subprocess`` takes them.

    It finds this package. Neither it nor the processes that it starts run Python files of the
    working folder. The ``variables`` are added to the environment of this process.
    """
    path = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))
    own = {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}  # the second is python -P
    return {"args": [sys.executable, *arguments], "env": {**os.environ, **variables, **own}}
