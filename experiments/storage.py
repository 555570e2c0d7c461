"""Measures what each storage of the weights takes, and how far it moves the logits.

    python -m experiments.storage MODEL --data dev.jsonl.gz

The model is saved in each kind of storage, loaded again, and computes the same windows of real
pages in float32. Drift is the difference of the start and end logits from those of the float32
weights. A window counts as changed if another start or end has the highest logit.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import command
from experiments.text_tables import markdown
from nq.commands import arguments
from nq.errors import Error
from nq.formats import input_files, inputs
from nq.inference.scorer import concatenate
from nq.model import checkpoint
from nq.model.config import STORES
from nq.model.folder import check_model, load_config, load_settings, read_tensors, weight_files
from nq.model.registry import model_folder
from nq.model.runtime import import_tensorflow
from nq.preprocess.features import features
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import Columns

INPUTS = ("input_ids", "input_mask", "segment_ids")
SPANS = ("start_logits", "end_logits")


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.add_argument("model", metavar="MODEL", help="model folder, or name of a model")
    arguments.add_data(parser)
    command.add_option(parser, "windows", 64, "windows to compute, each from another page")


def windows_of(files: Sequence[str], model: Path, count: int) -> Columns:
    """Returns the first window of each of the first pages; an ``Error`` if there are none."""
    tokenizer, settings = load_tokenizer(model), load_settings(model)
    examples = itertools.islice(inputs.read_examples(files), count)
    rows = [features(example, tokenizer, settings.windows).rows for example in examples]
    if not rows:
        raise Error("the data have no questions: give other files")
    return concatenate([{name: row[name][:1] for name in INPUTS} for row in rows])


def compare(model: Path, rows: Columns, folder: Path) -> list[dict[str, Any]]:
    """Returns the figures of each kind of storage of a model, computed on rows of windows."""
    from nq.model import joint

    tokenizer = load_tokenizer(model)
    config = checkpoint.with_room_for(load_config(model), tokenizer)
    network = joint.load_model(model, config=config).model
    weights = [weight.numpy() for weight in network.weights]
    expected = network.predict(rows, batch_size=8, verbose=0)
    figures = []
    for store in STORES:
        for weight, value in zip(network.weights, weights, strict=True):
            weight.assign(value)
        (folder / store).mkdir()
        checkpoint.save_weights(folder / store, network, config, store)
        size = sum(path.stat().st_size for path in weight_files(folder / store))
        checkpoint.fill(network, read_tensors(folder / store), config)
        logits = network.predict(rows, batch_size=8, verbose=0)
        figures.append({"store": store, "bytes": size, **drift(logits, expected, rows)})
    return figures


def drift(logits: Columns, expected: Columns, rows: Columns) -> dict[str, float]:
    """Returns how far logits are from the expected ones, on the pieces of all windows."""
    real = rows["input_mask"] > 0
    differences = np.concatenate([(logits[name] - expected[name])[real] for name in SPANS])
    best = [
        [np.where(real, columns[name], -np.inf).argmax(axis=1) for columns in (logits, expected)]
        for name in SPANS
    ]
    return {
        "mean_drift": float(np.abs(differences).mean()),
        "max_drift": float(np.abs(differences).max()),
        "logit_deviation": float(np.concatenate([expected[n][real] for n in SPANS]).std()),
        "changed_share": float(np.any([one != other for one, other in best], axis=0).mean()),
    }


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    model = model_folder(args.model)
    check_model(model)
    with input_files.input_files(args.data) as files:
        rows = windows_of(files, model, args.windows)
    import_tensorflow()
    with tempfile.TemporaryDirectory() as folder:
        figures = compare(model, rows, Path(folder))
    return command.show({"windows": len(rows["input_ids"]), "stores": figures}, table, args)


def table(result: Mapping[str, Any]) -> str:
    """Returns the figures as a Markdown table."""
    head = ("store", "MB", "mean drift", "largest drift", "deviation of logits", "windows changed")
    cells = (
        (
            *(row["store"], f"{row['bytes'] / 10**6:.1f}"),
            *(f"{row[name]:.4f}" for name in ("mean_drift", "max_drift", "logit_deviation")),
            f"{100 * row['changed_share']:.1f}%",
        )
        for row in result["stores"]
    )
    return markdown(head, *cells)


main = command.main(run, options)

if __name__ == "__main__":
    raise SystemExit(main())
