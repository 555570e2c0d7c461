"""``python -m nq`` is the console script."""

from nq.cli import console

raise SystemExit(console())
