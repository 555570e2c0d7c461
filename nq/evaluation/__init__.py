"""The metrics of Natural Questions, computed as the official script ``nq_eval.py`` computes them.

The official script is in google-research-datasets/natural-questions. The folder eval/ of the
repository only runs this package, because a wheel must not install a package called eval.
"""
