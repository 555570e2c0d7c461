"""Tracking: one flat MLflow run per command. The only package that imports MLflow.

Tracking is a guest: whatever happens to it, the answers are written. The first failure (a server
that is down, refuses or hangs, a database that is locked, broken or cannot be written) costs one
warning line and a few seconds, and from then on every call does nothing.

>>> with start(enabled=False) as run:
...     run.params({"profile": "mixed+xla"})
...     run.metrics({"quality/long_f1": 0.5})
>>> run.run_id is None
True
"""

from __future__ import annotations

from nq.tracking.address import DEFAULT_EXPERIMENT, DEFAULT_URI, how_to_open
from nq.tracking.run import Run, attach, start
from nq.tracking.values import colour

__all__ = ["DEFAULT_EXPERIMENT", "DEFAULT_URI", "Run", "attach", "colour", "how_to_open", "start"]
