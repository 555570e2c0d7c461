"""Compares the speed of our engines with transformers, ONNX Runtime and OpenVINO.

    python -m experiments.peers --data ../shared/data/pages
    python -m experiments.peers --data ../shared/data/pages --shape base --max-seq-length 512

All compute the same weights on the same full windows of real pages, on the CPU, in alternating
rounds, each in a process of its own. Only the computation is timed. ``pip install
'nq-pipeline[cpu,onnx,openvino,peers]'`` installs all; peers that lack packages are skipped.
All models are in memory at once, some 15 GB for the bundled one; ``--peers`` measures fewer.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from experiments.peers.flops import peaks
from experiments.peers.measure import Measured, measure
from experiments.peers.models import BASELINE, PEERS, Peer
from experiments.peers.report import Measurement, Report, rows, table
from nq import storage
from nq.commands import arguments, terminal
from nq.errors import Error
from nq.model.config import ModelConfig
from nq.model.registry import model_folder
from nq.model.runtime import import_tensorflow
from nq.model.shapes import window_gflop

SHAPES = {"base": ModelConfig()}
RESULT = "peers.json"


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.peers",
        description="Compares our engines with other libraries on the same weights and windows.",
    )
    arguments.add_data(parser)
    model = parser.add_mutually_exclusive_group()
    model.add_argument("--model", metavar="MODEL", help="default: the bundled model")
    model.add_argument("--shape", choices=SHAPES, help="a BERT of this size with random weights")
    parser.add_argument(
        "--max-seq-length",
        type=arguments.positive,
        metavar="N",
        help="pieces in a window (default: the model's)",
    )
    parser.add_argument(
        "--batch-size",
        type=arguments.positive,
        metavar="N",
        help="windows in a batch (default: as many as have 4096 pieces)",
    )
    parser.add_argument(
        "--windows",
        type=arguments.positive,
        default=32,
        metavar="N",
        help="windows without padding in a round, rounded up to whole batches (default: 32)",
    )
    parser.add_argument(
        "--rounds", type=arguments.positive, default=5, metavar="N", help="(default: 5)"
    )
    parser.add_argument(
        "--peers",
        nargs="+",
        choices=PEERS,
        default=list(PEERS),
        metavar="NAME",
        help=f"peers to measure besides {BASELINE}; default: {', '.join(PEERS)}",
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help=f"folder to write {RESULT} to")
    arguments.add_common(parser)
    return parser


def peers(args: argparse.Namespace) -> int:
    """Runs the command."""
    from nq.formats.input_files import find_files

    files = find_files(args.data)
    if args.output:
        storage.check_output_file(args.output / RESULT, files)
    import_tensorflow()
    with tempfile.TemporaryDirectory() as name:
        report = _report(args, files, Path(name))
    if args.output:
        args.output.mkdir(parents=True, exist_ok=True)
        text = json.dumps(report.to_dict(), indent=2) + "\n"
        (args.output / RESULT).write_text(text, encoding="utf-8")
    if args.json:
        terminal.print_json(report.to_dict())
    else:
        print(table(report))
    return terminal.FAILED if report.failed else 0


def _report(args: argparse.Namespace, files: Sequence[str], folder: Path) -> Report:
    """Measures all peers; ``folder`` is for temporary files."""
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
    with terminal.ProgressBar("peers", "rounds") as bar:
        results = measure(installed, task, args.rounds, None if args.verbose else folder, bar)
    after, gflop = peaks(), window_gflop(load_config(model), length)
    best = {name: max(before[name], after[name]) for name in before}
    measurements = measured(results)
    return Report(
        args.shape or model.name,
        length,
        batch_size,
        measurements[0].ready.logits.shape[1],
        gflop,
        best,
        rows(measurements, gflop, best),
        skipped,
        {str(x.peer): x.failure for x in results if x.failure},
        _versions(installed),
    )


def available(peers: Sequence[Peer]) -> tuple[list[Peer], dict[str, str]]:
    """Returns the baseline and the peers that are installed, and what the others need."""
    missing = {str(peer): packages for peer in peers if (packages := peer.missing())}
    installed = [peer for peer in peers if str(peer) not in missing and peer != BASELINE]
    return [BASELINE, *installed], missing


def measured(peers: Sequence[Measured]) -> list[Measurement]:
    """Returns the measurements of the peers that did not fail, the baseline first.

    Raises:
        Error: the baseline failed.
    """
    if peers[0].failure:
        raise Error(f"{peers[0].peer}: {peers[0].failure}")
    return [Measurement(p.peer, p.ready, p.seconds) for p in peers if p.ready]


def _versions(peers: Sequence[Peer]) -> dict[str, str]:
    """Returns the versions of the packages that were used."""
    names = dict.fromkeys(["keras", *(name for peer in peers for name in peer.packages)])
    versions = {name: importlib.metadata.version(name) for name in names}
    return {"tensorflow": import_tensorflow().__version__, **versions}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return terminal.run(peers, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
