"""The HTTP server of ``nq serve``, and the model that MLflow serves (``mlflow_model.py``).

A request passes ``app``, ``service`` and, with its windows, ``batcher``. The process
of the server does not import TensorFlow: the model runs in other processes.
"""
