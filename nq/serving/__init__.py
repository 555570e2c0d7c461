"""The HTTP server of ``nq serve``, and the model that MLflow serves (``mlflow_model.py``).

| step | file |
|---|---|
| bytes of a request -> question and page, or what is wrong in one sentence | ``schemas.py`` |
| question and page -> windows; scores -> the answer as JSON | ``answering.py`` |
| windows of several requests -> batches for the model's processes | ``batcher.py`` |
| paths, errors as JSON | ``app.py`` |
| token, limit of requests, security headers | ``access.py`` |
| counters and times for Prometheus | ``metrics.py`` |
| socket, processes of the model, signals, draining | ``server.py`` |
| the page at ``/`` | ``page/`` |

The process of the server does not import TensorFlow: the model runs in other processes.
"""
