"""Keeps ``python -m eval.nq_eval`` working in the repository; see ``nq.evaluation``."""

from nq import __version__  # noqa: F401  # ends the command with one line where nq is not installed
