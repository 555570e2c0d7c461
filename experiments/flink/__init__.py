"""A small Flink cluster on this machine, for tests and for trying ``nq answer --runner``.

``install`` fetches Flink and builds Beam's job server, ``programs`` has the command lines,
``processes`` starts and ends them, ``cluster`` joins these. ``experiments.cluster`` is the command.
"""
