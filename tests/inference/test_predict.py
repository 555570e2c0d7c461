"""Prediction: what leaves the device, under every profile; results that survive a kill."""

from __future__ import annotations

import dataclasses
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from nq.errors import Error
from nq.inference.batches import Shape
from nq.inference.engine import Rows, Step, Task
from nq.inference.network import Network
from nq.inference.predict import PART_BATCHES, predict, some_windows
from nq.inference.predictor import Predictor
from nq.inference.profile import THESIS, Profile, ProfileNotInForceError, profiles
from nq.inference.top_k import Selection, best_positions
from nq.records import Features, Source, WindowScores
from nq.runs.score_store import Results
from tests import tiny_models
from tests.postprocess import synthetic_pages

ROOT = Path(__file__).parents[2]
LENGTH, BATCH, K = 16, 4, 5
PART = PART_BATCHES * BATCH
REQUEST = {"windows": "some", "k": K}
Examples = list[tuple[Source, Features]]


def new_predictor(
    profile: str = "baseline",
    k: int = K,
    text_only: bool = True,
    dtype: str | None = None,
    calibration: Callable[[], Rows] = dict,
    in_float32: Callable[[], Predictor] | None = None,
) -> Predictor:
    found = Profile.parse(profile)
    network = Network(tiny_models.SHAPE, tiny_models.model(dtype=dtype or found.policy("CPU")))
    task = Task(network, found, Selection(k, text_only), calibration)
    return Predictor(task, Shape(BATCH, LENGTH), in_float32)


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    """Baseline, text only; traced once for most tests."""
    return new_predictor()


def examples(*n_windows: int, file: int = 0) -> Examples:
    """Examples with so many windows each, on lines 1, 2, …"""
    return [
        (Source(file, "f", line), tiny_models.features(line + 100 * file, n, LENGTH))
        for line, n in enumerate(n_windows, 1)
    ]


def shard(folder: Path, found: Examples, name: str = "windows-0.tfrecord") -> Path:
    return tiny_models.write_shard(folder / name, found)


def parts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.npz"))}


@functools.cache
def plain_model() -> Any:
    return tiny_models.model()


def all_logits(features: Features) -> synthetic_pages.Logits:
    """Every logit of an example's windows, from the plain model."""
    rows = {name: getattr(features, name) for name in ("input_ids", "input_mask", "segment_ids")}
    found = {name: np.asarray(value) for name, value in plain_model()(rows).items()}
    start, end, types = (found[f"{name}_logits"] for name in ("start", "end", "type"))
    return synthetic_pages.Logits(start, end, types, features.token_map)


def assert_close(found: WindowScores, expected: WindowScores, atol: float = 1e-5) -> None:
    for name in WindowScores.__slots__:
        actual, wanted = getattr(found, name), getattr(expected, name)
        if name.endswith(("doc", "pos")):
            np.testing.assert_array_equal(actual, wanted)
        else:
            np.testing.assert_allclose(actual, wanted, atol=atol)


# --- the best positions


@st.composite
def tables(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """Logits with many ties, which positions are allowed, and their document tokens."""
    seed = draw(st.integers(0, 2**32 - 1))
    values = np.random.default_rng(seed)
    logits = values.integers(-3, 3, (3, 12)).astype(np.float32) * draw(st.sampled_from([1, 0.1]))
    allowed = values.random((3, 12)) < draw(st.floats(0, 1))
    return logits + 0, allowed, values.integers(0, 99, (3, 12)).astype(np.int32)


SIGNATURE = [tf.TensorSpec((3, 12), kind) for kind in (tf.float32, tf.bool, tf.int32)]
COMPILED = {
    jit: tf.function(
        lambda logits, allowed, doc: best_positions(logits, allowed, doc, K),
        input_signature=SIGNATURE,
        jit_compile=jit,
    )
    for jit in (False, True)
}


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
@settings(deadline=None, max_examples=60)
@given(tables())
def test_best_positions_are_those_of_a_stable_sort(jit: bool, table: tuple[Any, Any, Any]) -> None:
    logits, allowed, token_map = table
    doc, pos, value = (np.asarray(column) for column in COMPILED[jit](*table))
    for row in range(3):
        order = np.argsort(-logits[row], kind="stable")
        top = order[allowed[row][order]][:K]
        n = len(top)
        assert pos[row, :n].tolist() == top.tolist()
        np.testing.assert_array_equal(value[row, :n], logits[row, top])
        assert doc[row].tolist() == token_map[row, top].tolist() + [-1] * (K - n)
        assert np.isfinite(value[row]).all()


@pytest.mark.parametrize(("text_only", "k"), [(True, K), (False, 10)])
def test_what_leaves_the_device_is_what_a_slow_search_finds(
    tmp_path: Path, text_only: bool, k: int
) -> None:
    found = examples(3, 1, 5, 1, 3)
    found[1][1].token_map[:] = -1
    path = shard(tmp_path, found)
    predict(new_predictor(k=k, text_only=text_only), [path], tmp_path / "r", REQUEST)
    results = Results(tmp_path / "r", (path,))
    for source, features in found:
        expected = synthetic_pages.window_scores(all_logits(features), k, text_only)
        gathered = results[source.file_index, source.line]
        if text_only:  # which positions fill up a window with too little text is of no matter
            there = gathered.start_doc >= 0
            np.testing.assert_array_equal(gathered.start_pos[there], expected.start_pos[there])
            np.testing.assert_array_equal(gathered.start_doc, expected.start_doc)
            assert_close(
                dataclasses.replace(
                    gathered, start_pos=expected.start_pos, end_pos=expected.end_pos
                ),
                expected,
            )
        else:
            assert (gathered.start_pos > 0).all() and (gathered.start_doc == -1).any()
            assert_close(gathered, expected)


# --- profiles


PROFILES = [
    *profiles((*THESIS, "frozen"))[1:],
    *map(Profile.parse, ("buckets", "mixed+grappler+frozen+buckets", "buckets+xla")),
    *profiles(("mixed", "openvino", "int8"))[2:],
    *map(Profile.parse, ("openvino+buckets", "onnx", "onnx+buckets", "onnx+int8")),
]


@pytest.fixture(scope="module")
def every_logit(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Scores of all positions of 21 windows, some of them full, under a profile."""
    folder = tmp_path_factory.mktemp("profiles")
    full = [(Source(0, "f", 9), tiny_models.features(9, 12, LENGTH, pieces=LENGTH))]
    path = shard(folder, examples(6, 3) + full)

    def scores(profile: str) -> dict[str, Any]:
        found = new_predictor(
            profile,
            LENGTH,
            text_only=False,
            calibration=lambda: some_windows([path], Shape(BATCH, LENGTH)),
        )
        timing = predict(found, [path], folder / profile, REQUEST)
        assert timing.windows == timing.read_windows == 21 and timing.float32_windows == 0
        assert timing.compile_s > 0 and timing.warmup_s > 0 and timing.windows_per_s > 0
        assert BATCH <= timing.warmup_windows <= 21
        with np.load(folder / profile / "windows-0-000000000000.npz") as arrays:
            columns = {name: arrays[name] for name in arrays.files}
        for side in ("start", "end"):
            order = np.argsort(columns[f"{side}_pos"], axis=1)
            by_position = np.take_along_axis(columns[f"{side}_logit"], order, axis=1)
            columns[f"{side}_logit_by_position"] = by_position[:, 1:]
        return columns

    return scores


@pytest.fixture(scope="module")
def baseline(every_logit: Any) -> dict[str, Any]:
    found: dict[str, Any] = every_logit("baseline")
    return found


@pytest.mark.parametrize("profile", PROFILES, ids=str)
def test_every_profile_finds_what_baseline_finds(
    profile: Profile, every_logit: Any, baseline: dict[str, Any]
) -> None:
    """In float32 to 1e-5, also under Grappler, whose fused layer norm would ignore epsilon."""
    found, exact = every_logit(str(profile)), not profile.names & {"mixed", "int8"}
    for name in ("example_keys", "window_ids"):
        np.testing.assert_array_equal(found[name], baseline[name])
    atol = 1e-5 if exact else 0.3 if "int8" not in profile.names else 0.7
    real = LENGTH if "buckets" not in profile.names else 5  # a shorter row has fewer positions
    for name in ("cls_logit", "type_logits"):
        np.testing.assert_allclose(found[name], baseline[name], atol=atol)
    for name in ("start_logit", "end_logit"):
        mine, theirs = found[name][:, :real], baseline[name][:, :real]
        np.testing.assert_allclose(mine, theirs, atol=atol)
        assert np.abs(mine - theirs).mean() < atol / 5
    if exact:
        for name in ("start_pos", "end_pos", "start_doc", "end_doc"):
            np.testing.assert_array_equal(found[name][:, :real], baseline[name][:, :real])


def test_a_layer_norm_with_another_epsilon_would_have_been_seen(baseline: dict[str, Any]) -> None:
    rows = tiny_models.features(1, 6, LENGTH)
    inputs = {n: getattr(rows, n) for n in ("input_ids", "input_mask", "segment_ids")}
    fused = tiny_models.model(shape=dataclasses.replace(tiny_models.SHAPE, layer_norm_eps=1e-3))
    start = np.asarray(fused(inputs)["start_logits"])[:, 1:]
    assert np.abs(start - baseline["start_logit_by_position"][:6]).max() > 0.05


def test_a_model_of_another_precision_is_refused() -> None:
    with (
        pytest.raises(ProfileNotInForceError, match="profile baseline is not in force"),
        new_predictor(dtype="mixed_bfloat16").ready(),
    ):
        pass


# --- parts and resuming


@pytest.mark.parametrize(
    ("sizes", "firsts"),
    [
        ((), []),
        ((1,), [0]),
        ((PART - 1,), [0]),
        ((PART, 1), [0, PART]),
        ((PART + 1,), [0]),
        ((5, PART, 2, PART - 2, PART, 1), [0, PART + 5, 2 * PART + 5, 3 * PART + 5]),
    ],
)
def test_parts_hold_so_many_batches_of_whole_examples(
    tmp_path: Path, predictor: Predictor, sizes: Sequence[int], firsts: Sequence[int]
) -> None:
    path = shard(tmp_path, examples(*sizes))
    told: list[int] = []
    timing = predict(predictor, [path], tmp_path / "r", REQUEST, told.append)
    assert list(parts(tmp_path / "r")) == [f"windows-0-{first:012d}.npz" for first in firsts]
    n = sum(sizes)
    assert (timing.windows, timing.resumed_windows, sum(told)) == (n, 0, n)
    results = Results(tmp_path / "r", (path,))
    for line, size in enumerate(sizes, 1):
        assert len(results[0, line]) == size


@pytest.fixture(scope="module")
def undisturbed(
    tmp_path_factory: pytest.TempPathFactory, predictor: Predictor
) -> tuple[list[Path], Path]:
    """Two shards of three parts and one, and their results."""
    folder = tmp_path_factory.mktemp("undisturbed")
    first = shard(folder, examples(PART, PART, 8), "windows-0.tfrecord")
    second = shard(folder, examples(5, 1, file=1), "windows-1.tfrecord")
    predict(predictor, [first, second], folder / "results", REQUEST)
    assert len(parts(folder / "results")) == 4
    return [first, second], folder / "results"


@pytest.mark.parametrize("kept", [0, 1, 3, 4])
def test_parts_that_are_gone_are_made_again_byte_for_byte(
    tmp_path: Path, predictor: Predictor, undisturbed: tuple[list[Path], Path], kept: int
) -> None:
    shards, results = undisturbed
    expected = parts(results)
    (tmp_path / "request.json").write_bytes((results / "request.json").read_bytes())
    for name in list(expected)[:kept]:
        (tmp_path / name).write_bytes(expected[name])
    told: list[int] = []
    timing = predict(predictor, shards, tmp_path, REQUEST, told.append)
    assert parts(tmp_path) == expected
    assert timing.resumed_windows == min(kept, 2) * PART + (kept > 2) * 8 + (kept > 3) * 6
    assert timing.resumed_windows + timing.windows == sum(told) == 2 * PART + 14


def die_in_the_middle(shards: list[Path], results: Path) -> None:
    """Runs as its own process: predicts until SIGKILL, half way through the second part."""
    left = PART + PART // 2

    def on_windows(n: int) -> None:
        nonlocal left
        left -= n
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    predict(new_predictor(), shards, results, REQUEST, on_windows)


def test_a_killed_run_goes_on_to_the_same_bytes(
    tmp_path: Path, predictor: Predictor, undisturbed: tuple[list[Path], Path]
) -> None:
    shards, results = undisturbed
    code = (
        "import pathlib, sys; from tests.inference.test_predict import die_in_the_middle;"
        "*shards, results = map(pathlib.Path, sys.argv[1:]); die_in_the_middle(shards, results)"
    )
    command = [sys.executable, "-c", code, *map(str, shards), str(tmp_path)]
    killed = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert list(parts(tmp_path)) == ["windows-0-000000000000.npz"]
    timing = predict(predictor, shards, tmp_path, REQUEST)
    assert timing.resumed_windows == PART
    assert parts(tmp_path) == parts(results)


def test_results_of_another_request_are_made_anew(tmp_path: Path, predictor: Predictor) -> None:
    path = shard(tmp_path, examples(6))
    predict(predictor, [path], tmp_path / "r", REQUEST)
    again = predict(predictor, [path], tmp_path / "r", REQUEST)
    other = predict(predictor, [path], tmp_path / "r", {**REQUEST, "k": 7})
    assert (again.windows, again.resumed_windows) == (0, 6)
    assert (other.windows, other.resumed_windows) == (6, 0)
    assert again.windows_per_s == 0 < other.windows_per_s


# --- broken weights


@pytest.fixture
def spoilt(tmp_path: Path) -> tuple[Path, int]:
    """A shard in which one window holds a piece, and that piece."""
    found, piece = examples(2, 4, file=3), tiny_models.VOCABULARY.index("[YES]")
    found[1][1].input_ids[2, 3] = piece
    return shard(tmp_path, found), piece


def spoil(predictor: Predictor, piece: int) -> None:
    """Makes the row of a piece in the word table NaN."""
    table = predictor.task.network.model.get_layer("embeddings").word
    rows = table.numpy()
    rows[piece] = np.nan
    table.assign(rows)


def test_a_logit_that_is_no_number_names_its_window(
    tmp_path: Path, spoilt: tuple[Path, int]
) -> None:
    found = new_predictor()
    spoil(found, spoilt[1])
    with pytest.raises(
        ArithmeticError,
        match="window 2 of the example in line 2 of input file 3 are not finite under profile "
        "baseline",
    ):
        predict(found, [spoilt[0]], tmp_path / "r", REQUEST)
    assert not parts(tmp_path / "r")


@pytest.mark.parametrize("profile", ["mixed+grappler", "mixed+buckets"])
def test_a_batch_that_is_not_finite_is_computed_again_in_float32(
    profile: str, tmp_path: Path, spoilt: tuple[Path, int], caplog: pytest.LogCaptureFixture
) -> None:
    found = new_predictor(profile, in_float32=new_predictor)
    spoil(found, spoilt[1])
    timing = predict(found, [spoilt[0]], tmp_path / "r", REQUEST)
    assert 0 < timing.float32_windows <= 6 and timing.windows == 6
    assert "window 2 of the example in line 2 of input file 3" in caplog.text
    predict(new_predictor(), [spoilt[0]], tmp_path / "exact", REQUEST)
    again, exact = (
        Results(tmp_path / name, (spoilt[0],))[3, 2].type_logits[2] for name in ("r", "exact")
    )
    np.testing.assert_allclose(again, exact, atol=1e-6)


def test_a_window_that_float32_cannot_compute_either_ends_the_run(
    tmp_path: Path, spoilt: tuple[Path, int]
) -> None:
    def worse() -> Predictor:
        plain = new_predictor()
        spoil(plain, spoilt[1])
        return plain

    found = new_predictor("mixed", in_float32=worse)
    spoil(found, spoilt[1])
    with pytest.raises(ArithmeticError, match=r"window 2 of the example in line 2 .* baseline"):
        predict(found, [spoilt[0]], tmp_path / "r", REQUEST)


# --- a device with too little memory


class Small:
    """An engine with memory for so many windows at once; computes with another one."""

    precision, device = "float32", "CPU"

    def __init__(self, other: Any, most: int) -> None:
        self.other, self.most = other, most

    def compiled(self, shape: Shape) -> Step:
        step = self.other.compiled(shape)

        def checked(rows: Rows) -> Sequence[Any]:
            if shape.batch_size > self.most:
                raise tf.errors.ResourceExhaustedError(None, None, "too large")
            found: Sequence[Any] = step(rows)
            return found

        return checked


@pytest.mark.parametrize("profile", ["baseline", "buckets"])
def test_a_batch_that_is_too_large_is_halved_and_said_once(
    profile: str, tmp_path: Path, predictor: Predictor, caplog: pytest.LogCaptureFixture
) -> None:
    path = shard(tmp_path, examples(9, 4))
    predict(predictor, [path], tmp_path / "large", REQUEST)
    small = new_predictor(profile)
    small.engine = Small(small.engine, 1)
    timing = predict(small, [path], tmp_path / "small", REQUEST)
    assert timing.windows == 13
    told = [r.getMessage() for r in caplog.records if "too little memory" in r.getMessage()]
    assert len(told) == len(set(told)) == (2 if profile == "baseline" else 8)
    for line in (1, 2):
        mine, theirs = (Results(tmp_path / name, (path,))[0, line] for name in ("small", "large"))
        np.testing.assert_allclose(mine.type_logits, theirs.type_logits, atol=1e-6)


def test_no_memory_for_one_window_ends_the_run(tmp_path: Path) -> None:
    small = new_predictor()
    small.engine = Small(small.engine, 0)
    with pytest.raises(Error, match="too little memory for a single window"):
        predict(small, [shard(tmp_path, examples(3))], tmp_path / "r", REQUEST)


# --- a layer that an engine does not know


class OnlyHere(keras.layers.Layer):  # type: ignore[misc]
    """What Python computes, which no compiler and no other runtime can."""

    def call(self, x: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(np.asarray, [x], x.dtype), x.shape)


@pytest.mark.parametrize("profile", ["xla", "openvino", "onnx"])
def test_a_layer_that_the_engine_cannot_run_ends_the_run_in_a_line(
    profile: str, tmp_path: Path
) -> None:
    model = tiny_models.model()
    outputs = {name: OnlyHere()(x) for name, x in model.output.items()}
    network = Network(tiny_models.SHAPE, keras.Model(model.input, outputs))
    task = Task(network, Profile.parse(profile), Selection(K, True))
    found = Predictor(task, Shape(BATCH, LENGTH))
    told = f"profile {profile} cannot run this model here, choose another one: .*PyFunc"
    with pytest.raises(Error, match=told):
        predict(found, [shard(tmp_path, examples(3))], tmp_path / "r", REQUEST)
