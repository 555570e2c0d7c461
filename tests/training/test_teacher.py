"""The teacher: its probabilities by another path, its parts on disk, and what is refused."""

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from nq.config import WindowConfig
from nq.inference.profile import Profile
from nq.model import joint
from nq.model.folder import ModelFolder
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import MODEL_INPUTS, Columns
from nq.storage import WORK, own_paths
from nq.training import distillation
from nq.training.distillation import Teacher
from nq.training.job import TRAINING, DistillationConfig
from nq.training.windows import TrainingWindows
from tests.support import tiny_models

LENGTH, PART = 24, 7
WINDOWS_CONFIG = WindowConfig(max_seq_length=LENGTH, max_query_length=8)
SHAPE = dataclasses.replace(tiny_models.SHAPE, num_hidden_layers=3)


WINDOWS = tiny_models.training_windows(30, LENGTH)


@pytest.fixture(scope="module")
def student(tiny_vocab: Path) -> Tokenizer:
    return load_tokenizer(tiny_vocab)


@pytest.fixture(scope="module")
def larger(tmp_path_factory: pytest.TempPathFactory, tiny_vocab: Path) -> Path:
    """A model with a layer more than the student."""
    folder, model = tmp_path_factory.mktemp("larger") / "model", joint.build(SHAPE, seed=3)
    return tiny_models.save(folder, model, SHAPE, tiny_vocab, max_seq_length=LENGTH)


@pytest.fixture(scope="module")
def teacher(larger: Path, student: Tokenizer) -> Teacher:
    return make(larger, student)


@pytest.fixture(autouse=True, scope="module")
def small_parts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(distillation, "PART_WINDOWS", PART)
        yield


@pytest.fixture(scope="module")
def pristine(teacher: Teacher, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Columns]:
    """The folder of a finished pass and its log probabilities."""
    folder = tmp_path_factory.mktemp("pristine") / "training" / "teacher"
    return folder, taught(teacher, WINDOWS, folder)


def make(folder: Path, student: Tokenizer, profile: str = "baseline") -> Teacher:
    return Teacher.of(ModelFolder(folder), student, WINDOWS_CONFIG, Profile(profile))


def taught(teacher: Teacher, windows: TrainingWindows, folder: Path) -> Columns:
    return teacher.distillation(DistillationConfig(), windows, folder).teacher


@pytest.mark.slow
def test_the_probabilities_of_a_teacher(teacher: Teacher, tmp_path: Path) -> None:
    """Against the Keras model itself, window by window."""
    targets = taught(teacher, WINDOWS, tmp_path / "training" / "teacher")
    model = joint.load_model(teacher.folder).model
    for number, n in enumerate(WINDOWS.n_pieces):
        ids = WINDOWS.input_ids[number, :n].tolist()
        segments = [0] * tiny_models.N_QUERY + [1] * (len(ids) - tiny_models.N_QUERY)
        rows = dict(zip(MODEL_INPUTS, ([ids], [[1] * len(ids)], [segments]), strict=True))
        logits = model({name: np.array(x, np.int32) for name, x in rows.items()})
        for name, column in targets.items():
            expected = softmax(np.asarray(logits[name])[0])
            actual = np.exp(column[number].astype(float))
            np.testing.assert_allclose(actual[: len(expected)], expected, atol=2e-4)
            assert not actual[len(expected) :].any()  # padding


class Recorder:
    """Counts the windows that a teacher computes, part by part, and may stop it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stop_at: int = 99) -> None:
        self.parts: list[int] = []
        compute: Callable[..., Columns] = Teacher._log_probabilities

        def recorded(teacher: Teacher, predictor: Any, windows: Any, rows: slice) -> Columns:
            if len(self.parts) == stop_at:
                raise KeyboardInterrupt
            self.parts.append(rows.start // PART)
            return compute(teacher, predictor, windows, rows)

        monkeypatch.setattr(Teacher, "_log_probabilities", recorded)


@pytest.mark.slow
def test_nothing_is_computed_twice(
    teacher: Teacher,
    pristine: tuple[Path, Columns],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    output, whole = tmp_path / "out", pristine[1]
    folder = output / WORK / "teacher"
    with monkeypatch.context() as patch:
        stopped = Recorder(patch, stop_at=2)
        with pytest.raises(KeyboardInterrupt):
            taught(teacher, WINDOWS, folder)
    assert stopped.parts == [0, 1]
    files = [path.name for path in own_paths(output, TRAINING) if path.is_file()]
    assert files == ["part-000000.npz", "part-000001.npz", "request.json"]
    with monkeypatch.context() as patch:
        resumed = Recorder(patch)
        np.testing.assert_equal(taught(teacher, WINDOWS, folder), whole)
    assert resumed.parts == [2, 3, 4]
    with monkeypatch.context() as patch:
        again = Recorder(patch)
        patch.setattr(Teacher, "_predictor", None)  # not even the model is loaded
        np.testing.assert_equal(taught(teacher, WINDOWS, folder), whole)
    assert not again.parts


@pytest.mark.parametrize("changed", ["windows", "profile"])
def test_of_another_request_nothing_is_used(
    changed: str,
    larger: Path,
    student: Tokenizer,
    pristine: tuple[Path, Columns],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "training" / "teacher"
    shutil.copytree(pristine[0], folder)
    shutil.copy(folder / "part-000000.npz", folder / "part-000005.npz")  # of more windows
    computed = Recorder(monkeypatch)
    profile = "grappler" if changed == "profile" else "baseline"
    other = tiny_models.training_windows(30, LENGTH, seed=1)
    windows = other if changed == "windows" else WINDOWS
    taught(make(larger, student, profile), windows, folder)
    assert computed.parts == [0, 1, 2, 3, 4]
    assert not (folder / "part-000005.npz").exists()


def test_a_model_of_another_tokenizer(larger: Path, student: Tokenizer, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(larger, other)
    pieces = (other / "vocab.txt").read_text("utf-8").replace("lake", "pond")
    (other / "vocab.txt").write_text(pieces, "utf-8")
    with pytest.raises(ValueError, match=f"{other} .*vocabulary"):
        make(other, student)
