"""``python -m nq`` is the console script."""

from nq.commands.main import console

raise SystemExit(console())
