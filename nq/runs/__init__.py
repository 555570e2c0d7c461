"""Runs on disk: a job, its execution, the store of its scores, comparison of two runs."""
