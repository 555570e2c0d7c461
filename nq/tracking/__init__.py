"""Records each command as one flat MLflow run, and saves models in MLflow's format.

Only the model itself, ``nq.serving.mlflow_model``, imports MLflow too.

Tracking never fails a command. The first failure (MLflow is not installed, a server that is down
or hangs, a database that is locked or broken) is reported in one warning line within a few seconds,
half a minute if a database stays locked, and from then on every call does nothing.

>>> with start(enabled=False) as run:
...     run.metrics({"quality/long_f1": 0.5})
>>> run.run_id is None
True
"""

from nq.tracking import view
from nq.tracking.history import History, RecordedRun, history
from nq.tracking.model import PackagedModel
from nq.tracking.run import Run, attach, start
from nq.tracking.store import DEFAULT_URI, Limits, how_to_open
from nq.tracking.values import color
from nq.tracking.view import DEFAULT_EXPERIMENT

__all__ = ["DEFAULT_EXPERIMENT", "DEFAULT_URI", "History", "Limits", "PackagedModel"]
__all__ += ["RecordedRun", "Run", "attach", "color", "history", "how_to_open", "start", "view"]
