"""Compares the speed of our engines with transformers, ONNX Runtime and OpenVINO.

    python -m experiments.peers --data ../shared/data/pages
    python -m experiments.peers --data ../shared/data/pages --shape base --max-seq-length 512

All compute the same weights on the same full windows of real pages, on the CPU, in alternating
rounds, each in a process of its own. Only the computation is timed. ``pip install
'.[cpu,onnx,openvino,peers]'`` installs all; peers that lack packages are skipped.
All models are in memory at once, some 15 GB for ``small``; ``--peers`` measures fewer.
"""

import argparse
import dataclasses
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments import Values, command, machine
from experiments.command import markdown
from experiments.peers.measure import measure, peaks
from experiments.peers.models import BASELINE, PEERS, Peer
from experiments.planning import models
from experiments.planning.models import window_gflop
from nq import extras
from nq.bundle import READER
from nq.commands import arguments, terminal
from nq.errors import Error
from nq.model.folder import ModelFolder
from nq.model.runtime import import_tensorflow
from nq.model.tensors import check_length

SHAPES = {"base": models.SHAPES["bert-base"], "deberta-base": models.SHAPES["deberta-base"]}
HEAD = (
    "peer",
    "type",
    "windows/s",
    "x baseline",
    "x best peer",
    "GFLOP/s",
    "of peak",
    "memory, MB",
    "drift",
)


def rows(measured: Sequence[Values], gflop: float, peaks: Mapping[str, float]) -> list[Values]:
    """Returns the figures of the peers, as JSON values.

    Args:
        measured: rows of ``experiments.peers.measure`` without failures, the baseline first.
        gflop: operations of one window, in 10^9.
        peaks: GFLOP/s of a large matrix product on the machine, by type.

    Returns:
        For each its speed as the median of the rounds, beside the baseline, beside the fastest
        other library with the same compute type (``None`` if there is no other), and as a share of
        the peak in that type (``None`` where that was not measured, as for 8 bits); ``drift`` is
        the largest difference of a logit from the baseline.
    """
    baseline = measured[0]["logits"]
    rounds = [[baseline.shape[1] / seconds for seconds in row["seconds"]] for row in measured]
    speeds = [statistics.median(windows_per_s) for windows_per_s in rounds]
    best: dict[str, float] = {}
    for row, speed in zip(measured, speeds, strict=True):
        if row["peer"].maker != "nq":
            best[row["precision"]] = max(best.get(row["precision"], 0.0), speed)
    return [
        {
            "name": str(row["peer"]),
            "precision": row["precision"],
            "windows_per_s": speed,
            "against_baseline": speed / speeds[0],
            "against_best_peer": _ratio(speed, best.get(row["precision"])),
            "gflop_per_s": speed * gflop,
            "of_peak": _ratio(speed * gflop, peaks.get(row["precision"])),
            "drift": float(abs(row["logits"] - baseline).max()),
            "load_s": row["load_s"],
            "memory_mb": row["memory_mb"],
            "rounds": windows_per_s,
        }
        for row, speed, windows_per_s in zip(measured, speeds, rounds, strict=True)
    ]


def _ratio(value: float, reference: float | None) -> float | None:
    return None if reference is None else value / reference


def table(result: Values) -> str:
    """Returns the result of the command as a Markdown table with notes."""
    cells = [
        (
            f"`{row['name']}`",
            row["precision"],
            f"{row['windows_per_s']:.3g}",
            f"{row['against_baseline']:.2f}",
            _if(row["against_best_peer"], ".2f"),
            f"{row['gflop_per_s']:.0f}",
            _if(row["of_peak"], ".0%"),
            f"{row['memory_mb']:.0f}",
            f"{row['drift']:.1e}",
        )
        for row in result["peers"]
    ]
    peaks = ", ".join(f"{x:.0f} in {name}" for name, x in result["peak_gflop_per_s"].items())
    lines = [
        f"{result['model']}: {result['windows']} windows of {result['max_seq_length']} pieces, "
        f"{result['gflop_per_window']:.1f} GFLOP each, in batches of {result['batch_size']}. "
        f"Peak, measured by a large matrix product, in GFLOP/s: {peaks}."
    ]
    for title in ("skipped", "failed"):
        lines += [f"{title} {name}: {reason}" for name, reason in result[title].items()]
    return "\n".join([markdown(HEAD, *cells), *lines, ""])


def _if(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _options(parser: argparse.ArgumentParser) -> None:
    arguments.add_data(parser)
    model = parser.add_mutually_exclusive_group()
    text = f"folder or name of one model (default: {READER})"
    model.add_argument("--model", default=READER, metavar="MODEL", help=text)
    model.add_argument(
        "--shape",
        choices=SHAPES,
        help="a model of this shape with random weights",
    )
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
    command.show(result, args, table)
    return terminal.FAILED if result["failed"] else 0


def compared(args: argparse.Namespace, files: Sequence[str], folder: Path) -> Values:
    """Measures all peers, with a folder for temporary files; an ``Error`` if the baseline fails."""
    from experiments.peers import inputs
    from nq.inference.batches import MIN_PIECES

    model = ModelFolder.open(args.model).path
    if args.shape:
        model = inputs.random_model(SHAPES[args.shape], folder / args.shape)
    windows = ModelFolder(model).settings.windows
    if args.max_seq_length:
        windows = dataclasses.replace(windows, max_seq_length=args.max_seq_length)
    length = windows.max_seq_length
    check_length(ModelFolder(model).config, length)
    batch_size = args.batch_size or max(1, MIN_PIECES // length)
    task = inputs.task(files, model, windows, batch_size, args.windows, folder)
    installed, skipped = available([PEERS[name] for name in PEERS if name in args.peers])
    before = peaks()
    results = measure(installed, task, args.rounds, None if args.verbose else folder)
    if results[0]["failure"]:
        raise Error(f"{BASELINE}: {results[0]['failure']}")
    best = {name: max(before[name], value) for name, value in peaks().items()}
    gflop = window_gflop(ModelFolder(model).config, length)
    whole = [row for row in results if not row["failure"]]
    return {
        "model": args.shape or model.name,
        "max_seq_length": length,
        "batch_size": batch_size,
        "windows": whole[0]["logits"].shape[1],
        "gflop_per_window": gflop,
        "peak_gflop_per_s": best,
        "peers": rows(whole, gflop, best),
        "skipped": skipped,
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


main = command.main(peers, _options)
