"""The reader of a job: what its scores depend on, and how it is loaded."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from nq.formats import inputs
from nq.inference.scorer import concatenate, feature_rows
from nq.model.folder import weights_digest
from nq.preprocess.features import features
from nq.preprocess.tokenizers.load import load_tokenizer, tokenizer_digest
from nq.records import Columns, Example, Features
from nq.runs.job import Job

if TYPE_CHECKING:
    from nq.inference.load import ReaderLoader

CALIBRATION_EXAMPLES, CALIBRATION_WINDOWS = 8, 64


def reader_identity(job: Job) -> dict[str, Any]:
    """Returns everything of the reader that scores depend on, as JSON values; empty without one."""
    reader = job.reader_model
    if reader is None:
        return {}
    tokenizer = load_tokenizer(reader.folder, reader.windows.compat)
    identity = {
        "weights": weights_digest(reader.folder),
        "tokenizer": tokenizer_digest(tokenizer),
        "windows": reader.windows.to_dict(),
        "read_blocks": reader.decision.read_blocks,
        "ranker": reader.decision.ranker.to_dict(),
    }
    return {"reader": identity}


def reader_loader(job: Job) -> ReaderLoader | None:
    """Returns the loader of a job's reader, ``None`` without one; imports TensorFlow."""
    reader = job.reader_model
    if reader is None:
        return None
    from nq.inference.load import ModelLoader, ReaderLoader

    folder, windows, decision = reader.folder, reader.windows, reader.decision
    tokenizer = load_tokenizer(folder, windows.compat)

    def reader_features(example: Example) -> Features:
        return features(example, tokenizer, windows)

    def calibration() -> Columns:
        readers = (inputs.read_records(path, pages=job.pages) for path in job.files)
        records = (record for reader in readers for _, record in reader)
        examples = islice((r for r in records if isinstance(r, Example)), CALIBRATION_EXAMPLES)
        rows = concatenate([feature_rows(reader_features(example)) for example in examples])
        step = -(-len(rows["window_ids"]) // CALIBRATION_WINDOWS)
        return {name: column[::step] for name, column in rows.items()}

    model = ModelLoader(folder, tokenizer, windows, decision, job.batch_size, calibration)
    return ReaderLoader(model, reader_features, decision)
