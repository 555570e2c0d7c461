"""Converts a model folder of any kind to another kind, or exports the model.

TensorFlow is imported when a conversion starts, so that ``FORMATS`` is cheap to import.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import io
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nq import extras
from nq.config import TEXT_SCOPE, WindowConfig
from nq.errors import check_argument
from nq.json_files import read_json_object
from nq.model import checkpoint
from nq.model.config import CLS, MEAN, STORES, ModelConfig
from nq.model.folder import ModelFolder
from nq.model.names import WORD_EMBEDDINGS
from nq.model.runtime import import_tensorflow, no_generated_files
from nq.storage import UNFINISHED, check_writable, hold_part

if TYPE_CHECKING:
    from nq.model.joint import LoadedModel

SAVEDMODEL = "tf_saved_model"
ONNX = "onnx"
"""Formats of Keras that ``export`` writes."""
POOLINGS = {"pooling_mode_mean_tokens": MEAN, "pooling_mode_cls_token": CLS}
RANKER_WINDOWS = WindowConfig(max_seq_length=512, window_scope=TEXT_SCOPE, doc_stride=512)
"""Long windows, so that few blocks are divided; the parts of a divided block do not overlap."""


def check_storage(to: str, storage: str) -> None:
    """Raises ``ValueError`` if a format cannot have weights of a type."""
    if storage != STORES[0] and not FORMATS[to].has_stores:
        formats = " or ".join(name for name, kind in FORMATS.items() if kind.has_stores)
        what = f"store is {storage}, which the format {to} cannot have"
        raise ValueError(f"{what}: choose {formats}")


def convert(
    source: str | Path,
    target: str | Path,
    to: str = "nq",
    storage: str = STORES[0],
    change: Callable[[LoadedModel], LoadedModel] | None = None,
) -> LoadedModel:
    """Converts or exports a model, as ``nq convert`` does; returns it, with the new folder.

    Args:
        target: folder to write, which is empty or does not exist.
        to: ``nq`` for a folder of this project, ``hf`` for one that ``transformers`` loads,
            ``savedmodel`` or ``onnx`` for an export, ``mlflow`` for a model that MLflow loads and
            serves.
        storage: type of the stored weights: ``"float32"``, ``"float16"`` or ``"int8"``.
        change: returns the model to write in place of the one that was loaded.

    Raises:
        FileNotFoundError, Error: there is no model, or a package is not installed.
        ValueError: the folder is not empty, the model is damaged, or an argument is wrong.
    """
    check_argument(to in FORMATS, "to", to, " or ".join(FORMATS))
    files = ModelFolder.find(source)
    target = Path(target)
    check_argument(storage in STORES, "storage", storage, " or ".join(STORES))
    check_storage(to, storage)
    if target.exists() and (target.is_file() or any(target.iterdir())):
        raise ValueError(f"{target} is not empty: choose a new folder")
    check_writable(target)
    path = target.resolve()  # a link to an empty folder stays a link
    if extra := FORMATS[to].extra:
        extras.require(extra)
    files.check()
    config = files.config
    if config.head_size and to == "hf":
        raise ValueError(
            f"{config.num_attention_heads} heads of {config.head_width} columns, which the format "
            f"hf cannot have: it expects {config.hidden_size} columns in all"
        )
    # one name, so that a second conversion is refused
    with hold_part(path.with_name(f"{UNFINISHED}{path.name}")) as part:
        import_tensorflow()
        from nq.model import joint

        loaded = joint.load_model(files)
        if change is not None:
            loaded = change(loaded)
        FORMATS[to].write(loaded, part / "model", storage)
        (part / "model").rename(path)  # also where an empty folder is
    return dataclasses.replace(loaded, files=ModelFolder(target))


def fitting_windows(windows: WindowConfig, config: ModelConfig) -> WindowConfig:
    """Returns windows that a model has positions for: the same, or shorter ones."""
    length = config.positions
    if windows.max_seq_length <= length:
        return windows
    query = min(windows.max_query_length, max(1, length // 4))
    return dataclasses.replace(windows, max_seq_length=length, max_query_length=query)


def to_dual_encoder(
    loaded: LoadedModel, question_prefix: str = "", block_prefix: str = ""
) -> LoadedModel:
    """Returns the dual encoder (``nq.model.joint``) that a sentence encoder makes.

    A text is represented as the folder's ``1_Pooling`` says, else by the mean of all outputs. The
    prefixes are those that the encoder was trained with before each question and before each block.
    """
    from nq.model import joint

    folder = loaded.folder
    if loaded.config.is_dual_encoder:
        raise ValueError(f"{folder} is a dual encoder already")
    config = dataclasses.replace(loaded.config, pooling=_pooling(folder / "1_Pooling"))
    config = checkpoint.with_room_for(config, loaded.files.tokenizer())
    dual = joint.load_model(loaded.files, config=config)
    lost = [name for name in dual.report.missing if not name.startswith(WORD_EMBEDDINGS)]
    if lost:
        raise ValueError(f"{folder} is no whole encoder, it lacks {', '.join(lost[:3])}")
    windows = dataclasses.replace(
        RANKER_WINDOWS, question_prefix=question_prefix, block_prefix=block_prefix
    )
    return dataclasses.replace(dual, windows=windows)


def _pooling(folder: Path) -> str:
    """Returns what stands for a text by the folder of ``sentence-transformers``."""
    path = folder / "config.json"
    if not path.is_file():
        return MEAN
    modes = read_json_object(path).items()
    used = sorted(name for name, value in modes if "_mode_" in name and value is True)
    for mode, pooling in POOLINGS.items():
        if used == [mode]:
            return pooling
    expected = " or ".join(POOLINGS)
    raise ValueError(f"{path} names {used or 'no mode'}: expected {expected}")


def _write_nq(loaded: LoadedModel, folder: Path, storage: str) -> None:
    config = loaded.config
    files = loaded.files
    tokenizer = files.tokenizer()
    checkpoint.with_room_for(config, tokenizer)  # raises for another model's vocabulary
    windows = fitting_windows(loaded.windows or files.settings.windows, config)
    checkpoint.save(
        folder,
        loaded.model,
        config,
        tokenizer,
        settings=dataclasses.replace(files.settings, windows=windows),
        card=f"# {files.name}\n\nConverted by `nq convert`.\n",
        store=storage,
        skip=loaded.report.missing,
    )


def _write_mlflow(loaded: LoadedModel, folder: Path, storage: str) -> None:
    from nq.mlflow_format import save_model

    with tempfile.TemporaryDirectory(prefix="nq-mlflow-") as temporary:
        model = Path(temporary) / "model"
        _write_nq(loaded, model, storage)
        save_model(folder, model)


def write_hugging_face(loaded: LoadedModel, folder: Path) -> None:
    """Writes a folder that ``transformers`` loads, with the encoder and the span head only."""
    folder.mkdir()
    heads = {w.path for w in loaded.model.weights if w.path.startswith(("type_", "pooler"))}
    skip = heads.union(loaded.report.missing)
    checkpoint.save_weights(folder, loaded.model, loaded.config, skip=skip)
    loaded.files.tokenizer().save(folder)
    checkpoint.copy_tokenizer(loaded.folder, folder)


def export(model: Any, path: Path, kind: str) -> None:
    """Writes a model by Keras, for any batch size and length, without the messages of Keras."""
    path.parent.mkdir(parents=True, exist_ok=True)
    model({given.name: np.zeros((1, 2), np.int32) for given in model.inputs})  # Keras requires it
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(), no_generated_files():
        warnings.simplefilter("ignore")  # tf2onnx uses names that numpy 2 deprecates
        model.export(str(path), format=kind, verbose=False)
    gc.collect()  # an export leaves several copies of the weights in reference cycles


@dataclasses.dataclass(frozen=True)
class ModelFormat:
    """A kind of folder; ``extra`` is of the distribution, ``has_stores`` allows any storage."""

    write: Callable[[LoadedModel, Path, str], None]
    extra: str | None = None
    has_stores: bool = False


FORMATS = {
    "nq": ModelFormat(_write_nq, has_stores=True),
    "hf": ModelFormat(lambda loaded, folder, _: write_hugging_face(loaded, folder)),
    "savedmodel": ModelFormat(lambda loaded, folder, _: export(loaded.model, folder, SAVEDMODEL)),
    "onnx": ModelFormat(
        lambda loaded, folder, _: export(loaded.model, folder / "model.onnx", ONNX), extra="onnx"
    ),
    "mlflow": ModelFormat(_write_mlflow, extra="mlflow", has_stores=True),
}
