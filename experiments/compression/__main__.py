"""Compression with a gate: what a smaller model gains in speed and loses in micro-F1.

    python -m experiments.compression --data train.jsonl.gz --dev dev.jsonl.gz --epochs 1
    python -m experiments.compression --data train.jsonl.gz --dev dev.jsonl.gz --states raw
    python -m experiments.compression --quick

Tests the claim of an essay on optimizing inference: BERT by quantization and parallel processing
1.30 times as fast, at most 2 % of the accuracy lost. Rows are the model under profiles and in two
processes; the model pruned (raw, with a decision of its own, and recovered by training on the
probabilities of the whole model); the best of these in 8 bits and in bfloat16. First the speeds of
all rows are measured, beside the baseline in the same rounds and on a machine without other work;
then each row is answered by a run of nq, for which the machine may be shared. The decision is tuned
on the even half of ``--dev``, and the odd half is reported. Options that the command does not know
are those of ``nq train`` for the recovery. An interrupted study continues with the rows that are
missing.
"""

import argparse
import time

from experiments import command, study
from experiments.compression import report
from experiments.compression.measure import Compression, best_variants, variants
from experiments.compression.models import STATES, Models, in_new_process, prunings, tiny_model
from nq import storage
from nq.bundle import bundled_sample
from nq.commands import terminal, train
from nq.errors import Error
from nq.formats.input_files import find_files
from nq.inference.profile import Profile
from nq.model.folder import ModelFolder
from nq.storage import sha256

SPEEDS = "speeds"
QUICK_PRUNE = "heads=2,ffn=64,layers=2"
QUICK_TRAINING = ("--epochs", "0.2", "--batch-size", "8")


def _options(parser: terminal.Parser) -> None:
    parser.pass_on = True
    parser.add_argument(
        "--data",
        nargs="+",
        metavar="FILE",
        help="training data, on which importance is measured and pruned models recover",
    )
    parser.add_argument(
        "--dev",
        nargs="+",
        metavar="FILE",
        help="annotated data; examples with even ids tune the decision, odd ones are reported",
    )
    command.add_one_model(parser)
    parser.add_argument(
        "--prune",
        nargs="*",
        metavar="SPEC",
        help="what pruned models keep, each as experiments.compression.pruning has it; default: "
        "three quarters and half of the FFN and of the heads, one and two layers less, and three "
        "mixtures",
    )
    command.add_list(parser, "states", STATES, STATES)
    text = "computes the answers of rows in float32, such as buckets+openvino, which is faster"
    command.add_option(parser, "scores-profile", Profile(), text)
    study.add_options(parser, report.STUDY.name)


def _check(args: argparse.Namespace) -> None:
    """Checks what the options say together, also those of nq train for the recovery."""
    train.parser().parse_args(["--data", "", "--init", "", "--output", "", *args.unknown])
    if args.scores_profile.changes.mixed or args.scores_profile.changes.int8:
        raise Error(f"--scores-profile {args.scores_profile} rounds: give one in float32")
    if args.quick:
        return
    if not args.data or not args.dev:
        raise terminal.UsageError("--data and --dev are needed, or --quick")
    training, dev = (set(map(sha256, find_files(files))) for files in (args.data, args.dev))
    if training & dev:
        raise Error("a file of --dev is among those of --data: give other training data")


def compression(args: argparse.Namespace) -> int:
    """Runs the command."""
    _check(args)
    started, sample = time.time(), [bundled_sample()]
    data, dev = map(find_files, [sample, sample] if args.quick else [args.data, args.dev])
    with storage.hold(args.output, report.STUDY.kind, [*data, *dev]):
        if args.quick:
            original = in_new_process(tiny_model, args.output / "models" / "tiny")
        else:
            original = ModelFolder.open(args.model).path
        if args.prune is None:
            shape = ModelFolder(original).config
            sizes = shape.num_attention_heads, shape.intermediate_size, shape.num_hidden_layers
            args.prune = [QUICK_PRUNE] if args.quick else prunings(*sizes)
        training = (*(QUICK_TRAINING if args.quick else ()), *args.unknown)
        settings = {
            "model": [original.name, ModelFolder(original).digest],
            "data": [sha256(path) for path in data],
            "dev": [sha256(path) for path in dev],
        }
        results = study.Results(report.STUDY, args, training=list(training), **settings)
        speeds = study.Results(report.STUDY, args, SPEEDS, **settings)
        measured = Compression(
            Models(args.output / "models", original, tuple(data), training),
            dev,
            args.output / "runs",
            args.rounds,
            str(args.scores_profile),
            results,
            speeds,
        )
        measured.add(variants(args.prune, args.states))
        measured.add(best_variants(results.rows))
        return study.finish(report.STUDY, args, results, started)


main = command.main(compression, _options)
