"""The metrics of Natural Questions, computed as the official script ``nq_eval.py`` computes them.

The official script is in google-research-datasets/natural-questions. This package imports nothing
else of nq. It is not in the folder eval/, which keeps ``python -m eval.nq_eval`` working in the
repository, because a wheel must not install a top-level package called eval.
"""
