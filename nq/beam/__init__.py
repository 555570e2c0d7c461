"""Beam transforms for pipelines of your own.

    import apache_beam as beam
    from nq.beam import Decide, MakeWindows, ReadQuestions, ScoreWindows

    with beam.Pipeline() as pipeline:
        questions = pipeline | ReadQuestions(["dev.jsonl.gz"])
        made = questions | MakeWindows("MODEL_FOLDER", output="examples")
        answers = made.windows | ScoreWindows("MODEL_FOLDER") | Decide("MODEL_FOLDER")
        answers | beam.Map(lambda answer: print(answer.prediction))
        made.dead_letters | beam.Map(print)

Apache Beam is imported when a transform is first used: ``pip install 'nq-pipeline[beam]'``.
"""

import importlib
from typing import TYPE_CHECKING, Any

from nq.extras import require

if TYPE_CHECKING:
    from nq.beam.score import Decide, ScoreWindows
    from nq.beam.transforms import MakeWindows, ReadQuestions

__all__ = ["Decide", "MakeWindows", "ReadQuestions", "ScoreWindows"]

_MODULES = {
    "Decide": "nq.beam.score",
    "MakeWindows": "nq.beam.transforms",
    "ReadQuestions": "nq.beam.transforms",
    "ScoreWindows": "nq.beam.score",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("beam")
    return getattr(importlib.import_module(_MODULES[name]), name)
