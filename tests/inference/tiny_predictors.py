"""Predictors of the tiny model, and rows of its random windows."""

from collections.abc import Callable, Sequence

import numpy as np

from nq.inference.batches import Shape
from nq.inference.engine import Computation, Network
from nq.inference.predictor import Predictor
from nq.inference.profile import Profile
from nq.inference.reduction import TopK
from nq.inference.scorer import PART_BATCHES, Rows, concatenate
from nq.model.config import ModelConfig
from nq.records import Columns, Features, Source
from tests.support import tiny_models

LENGTH, BATCH, K = 16, 4, 5
PART = PART_BATCHES * BATCH
"""Windows after which a part of a run is complete."""

Item = tuple[Source, Features]


def new_predictor(
    profile: str = "baseline",
    k: int = K,
    text_only: bool = True,
    dtype: str | None = None,
    calibration: Rows | None = None,
    float32: Callable[[], Predictor] | None = None,
    shape: ModelConfig = tiny_models.SHAPE,
    adaptive: bool = False,
) -> Predictor:
    """Returns a predictor of a tiny model; ``dtype`` replaces the policy of the profile."""
    parsed = Profile(profile)
    model = tiny_models.model(dtype=dtype or parsed.policy("CPU"), shape=shape)
    network = Network(shape, model)
    reduction = TopK(k, text_only)
    computation = Computation(network, parsed, reduction, calibration or {}, adaptive=adaptive)
    return Predictor(computation, Shape(BATCH, LENGTH), float32)


def items(*n_windows: int, file: int = 0) -> list[Item]:
    """Returns examples with so many windows each, in lines 1, 2, … of an input file."""
    return [
        (Source(file, "f", line), tiny_models.features(line + 100 * file, n, LENGTH))
        for line, n in enumerate(n_windows, 1)
    ]


def item_rows(items: Sequence[Item]) -> Columns:
    """Returns the windows of some examples as rows, as they are read from TFRecords."""
    parts = []
    for source, features in items:
        rows = {name: x.astype(np.int32) for name, x in features.rows.items()}
        keys = np.full((len(features), 2), (source.file_index, source.line), np.int32)
        parts.append({**rows, "example_keys": keys})
    return concatenate(parts)
