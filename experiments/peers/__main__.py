"""Compares the speed of our engines with transformers, ONNX Runtime and OpenVINO.

    python -m experiments.peers --data ../shared/data/pages
    python -m experiments.peers --data ../shared/data/pages --shape base --max-seq-length 512

All compute the same weights on the same full windows of real pages, on the CPU, in alternating
rounds, each in a process of its own. Only the computation is timed. ``pip install
'nq-pipeline[cpu,onnx,openvino,peers]'`` installs all; peers that lack packages are skipped.
All models are in memory at once, some 15 GB for the bundled one; ``--peers`` measures fewer.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments import command, machine
from experiments.peers.flops import peaks
from experiments.peers.measure import measure
from experiments.peers.models import BASELINE, PEERS, Peer
from experiments.peers.report import rows, table
from experiments.planning import models
from experiments.planning.flop import window_gflop
from nq import extras
from nq.commands import arguments, terminal
from nq.errors import Error
from nq.model.registry import model_folder
from nq.model.runtime import import_tensorflow

SHAPES = {"base": models.SHAPES["bert-base"], "deberta-base": models.SHAPES["deberta-base"]}


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    arguments.add_data(parser)
    model = parser.add_mutually_exclusive_group()
    model.add_argument("--model", metavar="MODEL", help="default: the bundled model")
    model.add_argument("--shape", choices=SHAPES, help="a model of this shape with random weights")
    text = "pieces in a window (default: the model's)"
    command.add_option(parser, "max-seq-length", None, text)
    text = "windows in a batch (default: as many as have 4096 pieces)"
    command.add_option(parser, "batch-size", None, text)
    command.add_option(parser, "windows", 32, "full windows in a round, in whole batches")
    command.add_option(parser, "rounds", 5, "rounds")
    command.add_list(parser, "peers", PEERS, PEERS)


def peers(args: argparse.Namespace) -> int:
    """Runs the command."""
    from nq.formats.input_files import find_files

    import_tensorflow()
    with tempfile.TemporaryDirectory() as name:
        result = compared(args, find_files(args.data), Path(name))
    command.show(result, table, args)
    return terminal.FAILED if result["failed"] else 0


def compared(args: argparse.Namespace, files: Sequence[str], folder: Path) -> dict[str, Any]:
    """Measures all peers, with a folder for temporary files; an ``Error`` if the baseline fails."""
    from experiments.peers import inputs
    from nq.inference.batches import MIN_PIECES
    from nq.model.folder import load_config

    model = model_folder(args.model)
    if args.shape:
        model = inputs.random_model(SHAPES[args.shape], folder / args.shape)
    windows = inputs.window_config(model, args.max_seq_length)
    length = windows.max_seq_length
    batch_size = args.batch_size or max(1, MIN_PIECES // length)
    task = inputs.task(files, model, windows, batch_size, args.windows, folder)
    installed, skipped = available([PEERS[name] for name in PEERS if name in args.peers])
    before = peaks()
    results = measure(installed, task, args.rounds, None if args.verbose else folder)
    if results[0]["failure"]:
        raise Error(f"{BASELINE}: {results[0]['failure']}")
    best = {name: max(before[name], value) for name, value in peaks().items()}
    gflop = window_gflop(load_config(model), length)
    whole = [row for row in results if not row["failure"]]
    return {
        **{"model": args.shape or model.name, "max_seq_length": length, "batch_size": batch_size},
        "windows": whole[0]["logits"].shape[1],
        **{"gflop_per_window": gflop, "peak_gflop_per_s": best},
        **{"peers": rows(whole, gflop, best), "skipped": skipped},
        "failed": {str(row["peer"]): row["failure"] for row in results if row["failure"]},
        "versions": extras.versions((*machine.PACKAGES, "onnx", "nncf", "tf2onnx")),
    }


def available(peers: Sequence[Peer]) -> tuple[list[Peer], dict[str, str]]:
    """Returns the baseline and the peers that are installed, and what the others need."""
    missing = {
        str(peer): packages for peer in peers if (packages := command.missing(peer.packages))
    }
    installed = [peer for peer in peers if str(peer) not in missing and peer != BASELINE]
    return [BASELINE, *installed], missing


main = command.main(peers, options)

if __name__ == "__main__":
    raise SystemExit(main())
