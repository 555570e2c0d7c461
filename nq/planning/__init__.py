"""How fast a model is on devices that need not be here, whole or split over several of them.

The equations are pure functions of seconds and bytes: ``collectives``, ``pipeline``, ``partition``,
``sharding``, ``disco`` and ``knee``. The predictions of ``nq plan`` combine them: ``costs`` and
``memory`` of a model, ``devices``, ``strategies``.
"""
