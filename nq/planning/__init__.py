"""Predicts how fast a model is on devices that need not be here, whole or split over them.

``partition`` and ``pipeline`` are equations of seconds. ``costs`` of a model and of messages,
``devices`` and ``strategies`` combine them into the predictions of ``nq plan``.
"""
