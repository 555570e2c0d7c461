"""Predicts how fast a model is on devices that need not be here, whole or split over them.

``collectives``, ``partition`` and ``pipeline`` are equations of seconds and bytes. ``costs`` of a
model, ``devices`` and ``strategies`` combine them into the predictions of ``nq plan``.
"""
