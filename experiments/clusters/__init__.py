"""A small cluster of Flink or Spark on this machine, for tests and to try ``nq answer --runner``.

``install`` fetches Flink, Spark and Beam's job servers, ``programs`` has the command lines,
``processes`` starts and ends them. ``experiments.cluster`` joins these, and is the command.
"""
