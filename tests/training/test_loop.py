"""The training loop: it learns, resumes exactly after a kill, and batches as documented."""

import dataclasses
import os
import signal
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import pytest

from nq.errors import Error
from nq.memo import Memo
from nq.model import joint
from nq.records import FloatArray, IntArray
from nq.training.job import LOSS, STEP, Figures, TrainConfig
from nq.training.loop import TrainingState, WarmupThenDecay, compile_for_training, fit
from nq.training.windows import TrainingWindows
from tests.runs.test_resume import run_killed
from tests.support import tiny_models
from tests.support.folders import flip

LENGTH = 16
SHAPE = dataclasses.replace(tiny_models.SHAPE, num_hidden_layers=1, initializer_range=0.3)
CONFIG = TrainConfig(
    epochs=50, batch_size=16, learning_rate=2e-2, dropout=0.01, save_every=40, seed=5
)
STEPS = 200
KILLED_AT = 50
FIRST = tiny_models.VOCABULARY.index("a")


def columns(n: int = 64, seed: int = 0) -> dict[str, IntArray]:
    """Windows in which marks show the answer's first and last piece, and the text its type."""
    draw = np.random.default_rng(seed)
    inputs = tiny_models.rows(draw.integers(10, LENGTH + 1, n).tolist(), LENGTH, seed)
    n_pieces = inputs["input_mask"].sum(axis=1)
    start = draw.integers(tiny_models.N_QUERY, n_pieces - 1)
    end = draw.integers(start, n_pieces - 1)
    kind = draw.integers(0, 5, n)
    ids, row = inputs["input_ids"], np.arange(n)
    ids[:] = np.where(ids >= FIRST, FIRST + 10 + kind[:, None], ids)
    ids[row, end] = FIRST + 1
    ids[row, start] = np.where(start == end, FIRST + 2, FIRST)
    return {**inputs, "start_positions": start, "end_positions": end, "answer_types": kind}


WINDOWS = TrainingWindows.from_columns(columns())


def untrained(config: TrainConfig = CONFIG, dtype: str = "float32") -> keras.Model:
    return joint.build(SHAPE, dtype=dtype, dropout=config.dropout, seed=config.seed)


def train(
    model: keras.Model,
    config: TrainConfig,
    folder: Path,
    on_step: Callable[[TrainingState], None] = lambda state: None,
) -> list[float]:
    state = TrainingState(Memo.open(folder, config.to_dict()))
    fit(model, WINDOWS, config, state, on_step)
    return state.losses[LOSS]


def weights(model: keras.Model) -> list[FloatArray]:
    return [weight.numpy() for weight in model.weights]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[keras.Model, Path]:
    """A model trained without interruption, and its folder."""
    model, folder = untrained(), tmp_path_factory.mktemp("training")
    losses = train(model, CONFIG, folder)
    assert len(losses) == STEPS
    assert losses[0] > 1 and np.mean(losses[-10:]) < 0.2
    return model, folder


def train_until_killed(folder: Path) -> None:
    """Trains in a process of its own until SIGKILL."""

    def on_step(state: TrainingState) -> None:
        if state.step == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)

    train(untrained(), CONFIG, folder, on_step)


@pytest.mark.slow
def test_a_killed_training_resumes_to_the_same_weights(
    uninterrupted: tuple[keras.Model, Path], tmp_path: Path
) -> None:
    run_killed("tests.training.test_loop", "train_until_killed", tmp_path)
    half_written = tmp_path / f"step-{KILLED_AT}.npz"
    half_written.write_bytes(b"PK\x03\x04")
    model, steps = untrained(), list[int]()
    train(model, CONFIG, tmp_path, lambda state: steps.append(state.step))
    assert steps == list(range(41, STEPS + 1))
    np.testing.assert_equal(weights(model), weights(uninterrupted[0]))
    assert {path.name for path in tmp_path.iterdir()} == {
        *("request.json", "progress.json"),
        f"step-{STEPS}.npz",
    }


@pytest.mark.slow
def test_half_precision_trains_float32_weights(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, precision="float16", epochs=4, save_every=16)
    model = untrained(config, "mixed_float16")
    before = weights(model)
    losses = train(model, config, tmp_path)
    assert len(losses) == 16 and np.isfinite(losses).all()
    assert np.mean(losses[-4:]) < np.mean(losses[:4])
    for old, new in zip(before, weights(model), strict=True):
        assert new.dtype == np.float32 and not np.array_equal(old, new)
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)


@pytest.mark.parametrize("steps", [1, 4])
def test_a_loss_or_weights_that_are_not_finite_end_the_training(steps: int, tmp_path: Path) -> None:
    """Of one step the loss is finite, since it is that before the step changes the weights."""
    config = dataclasses.replace(
        CONFIG, learning_rate=1e38, weight_decay=1e9, warmup=0, epochs=steps / 4, save_every=1
    )
    with pytest.raises(Error, match="1e\\+38"):
        train(untrained(config), config, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"request.json"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scores", "best", "killed_at"),
    [
        ([0.4, 0.1, 0.4], 3, 8),  # the first of the best ones, before the state of step 4
        ([0.1, 0.2, 0.4], 8, 7),
    ],
)
def test_the_weights_of_the_best_evaluation_are_kept(
    scores: list[float], best: int, killed_at: int, tmp_path: Path
) -> None:
    """With an evaluation every three of eight steps, which a resumed training repeats."""
    config = dataclasses.replace(CONFIG, epochs=2, save_every=4)
    due = dict(zip((3, 6, 8), scores, strict=True))
    evaluated: dict[int, list[FloatArray]] = {}

    def fit_until(killed_at: int) -> tuple[keras.Model, TrainingState]:
        model = untrained(config)
        state = TrainingState(Memo.open(tmp_path, config.to_dict()))

        def on_step(state: TrainingState) -> None:
            if state.step == killed_at:
                raise KeyboardInterrupt

        def measure() -> Figures:
            evaluated[state.step] = weights(model)
            return {"micro_f1": due[state.step], "long_f1": 1 - due[state.step]}

        fit(model, WINDOWS, config, state, on_step, None, measure, 3)
        return model, state

    with pytest.raises(KeyboardInterrupt):
        fit_until(killed_at)
    model, state = fit_until(99)
    assert state.best is not None and state.best[STEP] == best
    assert [figures[STEP] for figures in state.evaluations] == [3, 6, 8] == list(evaluated)
    np.testing.assert_equal(weights(model), evaluated[best])


@pytest.mark.parametrize("name", ["progress.json", "step-3.npz"])
def test_a_damaged_state_is_not_used(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    TrainingState(Memo(tmp_path), 3).save([keras.Variable(0.0)])
    flip(tmp_path / name, (tmp_path / name).stat().st_size // 2)
    state = TrainingState(Memo(tmp_path))
    state.restore([keras.Variable(0.0)])
    assert state.step == 0
    assert str(tmp_path / name) in caplog.text


@pytest.mark.parametrize(("warmup", "total"), [(0, 1), (3, 10)])
def test_the_learning_rate_rises_to_its_peak_and_falls_to_zero(warmup: int, total: int) -> None:
    schedule = WarmupThenDecay(0.5, warmup, total)
    rates = [float(schedule(step)) for step in range(total)]
    for step, rate in enumerate(rates, 1):
        rising = step / warmup if warmup else 1.0
        falling = (total - step) / max(1, total - warmup)
        assert rate == pytest.approx(0.5 * min(rising, falling), abs=1e-7)
    assert rates[-1] == 0


def test_weight_decay_excludes_biases_and_norms() -> None:
    model = untrained()
    config = dataclasses.replace(CONFIG, warmup=0, weight_decay=0.5)
    compile_for_training(model, config, 10**6, WINDOWS.answer_types)
    for weight in model.weights:
        weight.assign(np.full(weight.shape, 2.0))
    model.optimizer.build(model.trainable_variables)
    gradients = [keras.ops.zeros(weight.shape) for weight in model.trainable_variables]
    model.optimizer.apply(gradients)
    for weight in model.weights:
        excluded = weight.path.rsplit("/", 1)[1] in ("bias", "gamma", "beta")
        expected = 2.0 if excluded else 2.0 * (1 - 0.5 * CONFIG.learning_rate)
        np.testing.assert_allclose(weight.numpy(), expected, rtol=1e-6)
