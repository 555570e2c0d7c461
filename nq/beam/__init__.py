"""Beam transforms for pipelines of your own.

    import apache_beam as beam
    from nq.beam import MakeWindows, ReadQuestions

    with beam.Pipeline() as pipeline:
        questions = pipeline | ReadQuestions(["dev.jsonl.gz"])
        made = questions | MakeWindows("MODEL_FOLDER")
        made.windows | beam.io.WriteToTFRecord("windows")
        made.dead_letters | beam.Map(print)

Apache Beam is imported when a transform is first used: ``pip install 'nq-pipeline[beam]'``.
"""

from typing import TYPE_CHECKING, Any

from nq.extras import require

if TYPE_CHECKING:
    from nq.beam.transforms import MakeWindows, ReadQuestions

__all__ = ["MakeWindows", "ReadQuestions"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("beam")
    from nq.beam import transforms

    return getattr(transforms, name)
