"""Tests of the predictor: its scores under every profile, and what it does about failures."""

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import openvino
import pytest

from nq.errors import Error
from nq.inference import predictor as predictor_module
from nq.inference.batches import Shape
from nq.inference.engine import Engine, Step, make_engine
from nq.inference.predictor import Predictor
from nq.inference.profile import OPENVINO, THESIS, Profile, profiles
from nq.inference.scorer import Rows, example_slices, window_scores
from nq.model.config import ModelConfig
from nq.records import (
    MODEL_INPUTS,
    SCORE_COLUMNS,
    Columns,
    Features,
    Source,
    WindowScores,
)
from tests.inference.tiny_predictors import BATCH, LENGTH, K, item_rows, items, new_predictor
from tests.postprocess import synthetic_pages
from tests.support import tiny_models

slow, extended = pytest.mark.slow, pytest.mark.extended
FULL = (Source(0, "f", 9), tiny_models.features(9, 12, LENGTH, pieces=LENGTH))
ROWS = item_rows([*items(6, 3), FULL])
N_WINDOWS = 21


def assert_close(actual: Columns, expected: Columns, atol: float) -> None:
    for name in SCORE_COLUMNS:
        if name.endswith(("doc", "pos")):
            np.testing.assert_array_equal(actual[name], expected[name], name)
        else:
            np.testing.assert_allclose(actual[name], expected[name], atol=atol, err_msg=name)


def as_columns(scores: WindowScores) -> Columns:
    return {name: getattr(scores, name) for name in SCORE_COLUMNS}


def all_logits(model: Any, features: Features) -> synthetic_pages.Logits:
    """Returns every logit of an example's windows, computed by the Keras model itself."""
    rows = {name: getattr(features, name) for name in MODEL_INPUTS}
    logits = {name: np.asarray(value) for name, value in model(rows).items()}
    start, end, types = (logits[f"{name}_logits"] for name in ("start", "end", "type"))
    return synthetic_pages.Logits(start, end, types, features.token_map)


@pytest.mark.parametrize(("text_only", "k"), [(True, K), (False, 10)])
def test_scores_are_the_top_k_of_all_logits(text_only: bool, k: int) -> None:
    examples = items(3, 1, 5, 1, 3)
    examples[1][1].token_map[:] = -1
    rows, model, completed = item_rows(examples), tiny_models.model(), list[int]()
    columns = new_predictor(k=k, text_only=text_only).scores(rows, progress=completed.append)
    assert completed == [BATCH, BATCH, BATCH, 1]
    for (_, features), page in zip(examples, example_slices(rows), strict=True):
        expected = synthetic_pages.window_scores(all_logits(model, features), k, text_only)
        actual = window_scores(columns, page)
        if text_only:  # a window with too little text has other positions without a meaning
            actual, expected = (
                dataclasses.replace(
                    one,
                    start_pos=np.where(one.start_doc >= 0, one.start_pos, 0),
                    end_pos=np.where(one.end_doc >= 0, one.end_pos, 0),
                )
                for one in (actual, expected)
            )
        else:
            assert (actual.start_pos > 0).all() and (actual.start_doc == -1).any()
        assert_close(as_columns(actual), as_columns(expected), atol=1e-5)


LOGITS = ("start_logit", "end_logit", "cls_logit", "type_logits")
EXACT, BFLOAT16, INT8 = (1e-5, 1e-5), (0.3, 0.06), (0.75, 0.09)
"""Largest and mean difference of logits from float32; bfloat16 and 8 bits were measured to have
0.20 and 0.038, 0.49 and 0.064. The logits have a standard deviation of 1."""

CHECKED = (
    *("grappler", "mixed+xla", "mixed+grappler+frozen+buckets", "openvino+int8"),
    *("mixed+openvino", "openvino+buckets", "onnx+buckets", "onnx+int8"),
)
OTHERS = (*profiles((*THESIS, "frozen")), *profiles(("mixed", "openvino", "onnx", "int8")))
SHAPES = (tiny_models.SHAPE, tiny_models.RELATIVE, tiny_models.FEWER_HEADS)
NEWER = (tiny_models.DEBERTA, tiny_models.MODERNBERT)
PROFILES = [
    *(pytest.param(CHECKED[i], SHAPES[i % 3], marks=slow) for i in range(len(CHECKED))),
    *(pytest.param(CHECKED[i], NEWER[i % 2], marks=slow) for i in range(len(CHECKED))),
    *(pytest.param(str(name), tiny_models.SHAPE, marks=extended) for name in OTHERS),
]


def by_position(columns: Columns) -> Columns:
    """Returns scores of all positions, with the start and end logits in order of position."""
    result = dict(columns)
    for side in ("start", "end"):
        order = np.argsort(columns[f"{side}_pos"], axis=1)
        logits = np.take_along_axis(columns[f"{side}_logit"], order, axis=1)
        result[f"{side}_logit"] = logits[:, 1:]  # [CLS] is excluded, and its logit unset
    return result


def differences(columns: Columns, expected: Columns) -> tuple[float, float]:
    """Returns the largest difference of a logit, and the largest mean of a column."""
    columns, expected = by_position(columns), by_position(expected)
    absolute = [np.abs(columns[name] - expected[name]) for name in LOGITS]
    return max(float(x.max()) for x in absolute), max(float(x.mean()) for x in absolute)


def score_all_positions(
    profile: str, shape: ModelConfig = tiny_models.SHAPE
) -> tuple[Columns, Predictor]:
    predictor = new_predictor(profile, LENGTH, text_only=False, calibration=ROWS, shape=shape)
    return predictor.scores(ROWS), predictor


def is_refused(profile: Profile) -> bool:
    """Returns whether the processor lacks the profile's type in OpenVINO, which must say so."""
    if profile.changes.engine != OPENVINO or not profile.changes.mixed:
        return False
    if "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        return False
    with pytest.raises(Error, match="bfloat16"):
        score_all_positions(str(profile))
    return True


@pytest.mark.parametrize(("name", "shape"), PROFILES)
def test_every_profile_has_the_scores_of_baseline(name: str, shape: ModelConfig) -> None:
    profile = Profile(name)
    if is_refused(profile):
        return
    baseline = score_all_positions("baseline", shape)[0]
    columns, predictor = score_all_positions(name, shape)
    assert tuple(columns) == SCORE_COLUMNS
    largest, mean = differences(columns, baseline)
    bounds = EXACT  # Grappler's fused layer norm must keep epsilon
    if profile.names & {"mixed", "int8"}:
        bounds = INT8 if "int8" in profile.names else BFLOAT16
        assert mean > 0.003, "the profile computes in float32"
    assert largest < bounds[0] and mean < bounds[1]
    if profile.names & {"mixed"} and profile.changes.engine == "tensorflow":
        for column in LOGITS:  # OpenVINO runs the heads in bfloat16 too
            rounded = columns[column].astype(ml_dtypes.bfloat16).astype(np.float32)
            assert (rounded == columns[column]).mean() < 0.05, "the heads are not in float32"
    counters = predictor.counters
    assert counters.computed_windows == N_WINDOWS and counters.float32_windows == 0
    assert counters.compile_s > 0 and counters.warmup_s > 0
    assert BATCH <= counters.warmup_windows <= N_WINDOWS


@pytest.mark.parametrize(
    ("profile", "sizes"),
    [
        ("grappler", [{4, 2}, {1}, {4}]),
        *(pytest.param(name, [{4, 2}, {1}, {3}], marks=slow) for name in ("openvino", "onnx")),
    ],
)
def test_adaptive_batches_are_as_large_as_needed(profile: str, sizes: list[set[int]]) -> None:
    adaptive, fixed = new_predictor(profile, adaptive=True), new_predictor()
    for n_windows, expected in zip((6, 1, 3), sizes, strict=True):
        rows = item_rows(items(n_windows))
        computed = {shape.batch_size for shape in adaptive._steps}
        assert_close(adaptive.scores(rows), fixed.scores(rows), atol=1e-5)
        assert {shape.batch_size for shape in adaptive._steps} == computed | expected


WINDOW = re.compile(r"window 2\b.* line 2\b.* file 3\b")


def rows_with_bad_piece() -> tuple[Columns, int]:
    """Returns rows in which one window has a piece, and the id of that piece."""
    examples, piece = items(2, 4, file=3), tiny_models.VOCABULARY.index("[YES]")
    examples[1][1].input_ids[2, 3] = piece
    return item_rows(examples), piece


def make_nan(predictor: Predictor, piece: int) -> Predictor:
    """Makes the row of a piece in the word embeddings NaN."""
    table = predictor.network.model.get_layer("embeddings").word
    values = table.numpy()
    values[piece] = np.nan
    table.assign(values)
    return predictor


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["mixed+grappler", "mixed+buckets"])
def test_a_batch_that_is_not_finite_is_computed_again_in_float32(
    profile: str, caplog: pytest.LogCaptureFixture
) -> None:
    rows, piece = rows_with_bad_piece()
    predictor = make_nan(new_predictor(profile, float32=new_predictor), piece)
    columns = predictor.scores(rows)
    assert 0 < predictor.counters.float32_windows <= 6
    assert len(columns["type_logits"]) == predictor.counters.computed_windows == 6
    assert WINDOW.search(caplog.text)
    exact = new_predictor().scores(rows)
    bad = 2 + 2  # window 2 of the second example
    for name in LOGITS:
        np.testing.assert_allclose(columns[name][bad], exact[name][bad], atol=1e-6)


def test_logits_that_are_not_finite_in_float32_are_an_error() -> None:
    rows, piece = rows_with_bad_piece()
    mixed = new_predictor("mixed", float32=lambda: make_nan(new_predictor(), piece))
    for predictor in (make_nan(new_predictor(), piece), make_nan(mixed, piece)):
        with pytest.raises(ArithmeticError, match=WINDOW):
            predictor.scores(rows)


class SmallEngine:
    """An engine with memory for ``max_windows`` at once; another engine computes."""

    def __init__(self, engine: Engine, max_windows: int) -> None:
        self.engine, self.max_windows = engine, max_windows
        self.precision, self.device = engine.precision, engine.device
        self.any_shape, self.options = engine.any_shape, engine.options

    def compiled(self, shape: Shape) -> Step:
        step = self.engine.compiled(shape)

        def limited(rows: Rows) -> Sequence[Any]:
            if shape.batch_size > self.max_windows:
                raise MemoryError("too large")
            return step(rows)

        return limited


def limit_memory(monkeypatch: pytest.MonkeyPatch, max_windows: int) -> None:
    """Gives the engines of new predictors memory for so many windows."""
    monkeypatch.setattr(
        predictor_module, "make_engine", lambda c: SmallEngine(make_engine(c), max_windows)
    )


@pytest.mark.parametrize(
    ("profile", "warnings"), [("baseline", 2), pytest.param("buckets", 8, marks=slow)]
)
def test_batches_are_halved_until_they_fit_with_one_warning_for_each_size(
    profile: str, warnings: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rows = item_rows(items(9, 4))
    expected = new_predictor().scores(rows)
    limit_memory(monkeypatch, 1)
    small = new_predictor(profile)
    columns = small.scores(rows)
    assert small.counters.computed_windows == 13
    messages = [r.getMessage() for r in caplog.records if "memory" in r.getMessage()]
    assert len(messages) == len(set(messages)) == warnings
    for name in LOGITS[2:]:
        np.testing.assert_allclose(columns[name], expected[name], atol=1e-6)
    np.testing.assert_array_equal(columns["start_doc"], expected["start_doc"])
    limit_memory(monkeypatch, 0)
    with pytest.raises(Error, match="memory"):
        new_predictor().scores(rows)
