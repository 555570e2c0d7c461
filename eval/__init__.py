"""Keeps ``python -m eval.nq_eval`` working in the repository; see ``nq.evaluation``."""
