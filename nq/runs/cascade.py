"""The reader of a job: what its scores depend on, and how it is loaded."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from nq.formats import decoding
from nq.inference.scorer import concatenate, feature_rows
from nq.model.cascade import ReaderModel
from nq.model.folder import weights_digest
from nq.preprocess.features import features
from nq.preprocess.tokenizers.load import load_tokenizer, tokenizer_digest
from nq.records import Columns, Example
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
    from nq.inference import load

    calibration = partial(reader_calibration, job, reader)
    return load.reader_loader(reader, job.batch_size, calibration, job.threads)


def reader_calibration(job: Job, reader: ReaderModel) -> Columns:
    """Returns windows of a job's first examples as the reader has them."""
    tokenizer = load_tokenizer(reader.folder, reader.windows.compat)
    readers = (decoding.read_records(path, pages=job.pages) for path in job.files)
    records = (record for one in readers for _, record in one)
    examples = islice((r for r in records if isinstance(r, Example)), CALIBRATION_EXAMPLES)
    windows = [feature_rows(features(e, tokenizer, reader.windows)) for e in examples]
    rows = concatenate(windows)
    step = -(-len(rows["window_ids"]) // CALIBRATION_WINDOWS)
    return {name: column[::step] for name, column in rows.items()}
