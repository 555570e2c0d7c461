"""Compression with a gate: what a smaller model gains in speed and loses in micro-F1.

    python -m experiments.compression --data train.jsonl.gz --dev dev.jsonl.gz --epochs 1
    python -m experiments.compression --data train.jsonl.gz --dev dev.jsonl.gz --states raw
    python -m experiments.compression --quick

Tests the claim of an essay on optimizing inference: BERT by quantization and parallel processing
1.30 times as fast, at most 2 % of the accuracy lost. Rows are the model under profiles and in two
processes; the model pruned (raw, with a decision of its own, and recovered by training on the
probabilities of the whole model); the best of these in 8 bits and in bfloat16; as a control half of
the weights set to zero. First the speeds of all rows are measured, beside the baseline in the same
rounds and on a machine without other work; then each row is answered by a run of nq, for which the
machine may be shared. The decision is tuned on the even half of ``--dev``, and the odd half is
reported. Options that the command does not know are those of ``nq train`` for the recovery.
An interrupted study continues with the rows that are missing.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments import compression_report as report
from experiments import compression_speed as speed
from experiments import study
from experiments.compression_models import (
    RAW,
    RECOVERED,
    STATES,
    TUNED,
    Answers,
    Models,
    answers,
    in_new_process,
    prunings,
    tiny_model,
)
from experiments.compression_report import BASELINE, BFLOAT16, INT8
from nq import folders
from nq.bundle import bundled_sample
from nq.commands import arguments, terminal, train
from nq.errors import Error
from nq.evaluation.gate import question_counts, relative_loss
from nq.formats.input_files import find_files, sha256
from nq.inference.profile import Profile
from nq.model.flops import window_gflop
from nq.model.folder import load_config, load_settings, weights_digest
from nq.model.registry import model_folder
from nq.runs.parity import same_answers

ZEROS, BATCH_SIZE, SPEEDS = 0.5, 16, "speeds"
QUICK_PRUNE, QUICK_TRAINING = "heads=2,ffn=64,layers=2", ("--epochs", "0.2", "--batch-size", "8")


@dataclass(frozen=True)
class Variant:
    """One row: a model and how it is computed.

    Args:
        profile: its optimizations.
        instances: processes that share the windows.
        prune: what is pruned, as ``nq convert --prune`` has it; empty for the whole model.
        state: of a pruned model, one of ``STATES``.
        zeros: share of the weights that are set to zero.
        references: profiles of the baseline that are measured in the same rounds.
    """

    profile: str = BASELINE
    instances: int = 1
    prune: str = ""
    state: str = ""
    zeros: float = 0.0
    references: tuple[str, ...] = (BASELINE,)

    @property
    def key(self) -> dict[str, Any]:
        """What names the row in the results."""
        return {"prune": self.prune, "state": self.state, **self._computed}

    @property
    def speed_key(self) -> dict[str, Any]:
        """What the speed depends on: training changes weights, but no shape."""
        return {"prune": self.prune, **self._computed}

    @property
    def _computed(self) -> dict[str, Any]:
        return {"profile": self.profile, "instances": self.instances, "zeros": self.zeros}


def variants(prune: Sequence[str], states: Sequence[str]) -> list[Variant]:
    """Returns the rows that are known from the start, baseline first."""
    whole = [
        *(Variant(), Variant(BFLOAT16), Variant(INT8)),
        *(Variant(instances=2), Variant(INT8, instances=2)),
    ]
    pruned = [Variant(prune=text, state=state) for text in prune for state in states]
    return [*whole, Variant(zeros=ZEROS), *pruned]


def best_variants(rows: Sequence[study.Row]) -> list[Variant]:
    """Returns the best pruned model in 8 bits, and in bfloat16 beside the whole model in it."""
    best = report.best(rows)
    if best is None:
        return []
    prune, state = best["prune"], best["state"]
    return [
        Variant(INT8, prune=prune, state=state),
        Variant(BFLOAT16, prune=prune, state=state, references=(BASELINE, BFLOAT16)),
    ]


class Compression:
    """Measures rows.

    Args:
        models: the model folders.
        dev: annotated files.
        root: folder of the runs of nq.
        rounds: number of rounds.
        scores_profile: computes the answers of the rows whose profile is the baseline.
        results: the rows that are known already.
        speeds: the speeds that are known already.
    """

    def __init__(
        self,
        models: Models,
        dev: Sequence[str],
        root: Path,
        rounds: int,
        scores_profile: str,
        results: study.Results,
        speeds: study.Results,
    ) -> None:
        self.models, self.dev, self.root, self.rounds = models, tuple(dev), root, rounds
        self.scores_profile, self.results, self.speeds = scores_profile, results, speeds

    def time(self, variant: Variant) -> None:
        """Measures the speed of a variant, for which a pruned model need not recover."""
        if self.speeds.find(variant.speed_key) is None:
            folder = self.models.of(variant.prune, variant.prune and RAW, variant.zeros)
            self.speeds.add({**variant.speed_key, **self._speed(variant, folder)})

    def judge(self, variant: Variant) -> None:
        """Measures the quality of a variant that is timed, and adds its row."""
        speed = self.speeds.find(variant.speed_key)
        if speed is not None and self.results.find(variant.key) is None:
            folder = self.models.of(variant.prune, variant.state, variant.zeros)
            self.results.add({**variant.key, **self._quality(variant, folder), **speed})

    def _answers(self, variant: Variant, folder: Path) -> Answers:
        """Returns the answers of a variant.

        Those under the baseline's profile may be computed under another one in float32, and in one
        process, since the number of processes does not change them.
        """
        is_plain = variant.profile == BASELINE
        instances = variant.instances if variant.instances > 1 and not is_plain else None
        profile = self.scores_profile if is_plain else variant.profile
        return answers(self.dev, folder, profile, instances, BATCH_SIZE, self.root)

    def _quality(self, variant: Variant, folder: Path) -> dict[str, Any]:
        """Returns micro-F1 and relative loss on the odd half, and the answers that changed."""
        own, source = self._answers(variant, folder), self.models.source
        is_tuned = variant == Variant() or variant.state in (TUNED, RECOVERED)
        if is_tuned and variant.profile == BASELINE:
            own.tune(folder)
        gold, mine = own.odd_half(load_settings(folder if is_tuned else source).decision)
        baseline = self._answers(Variant(), source)
        _, others = baseline.odd_half(load_settings(source).decision)
        loss = relative_loss(question_counts(gold, mine), question_counts(gold, others))
        return {
            **{"micro_f1": loss.micro_f1, "baseline_micro_f1": loss.other_micro_f1},
            **{"loss": loss.loss, "low": loss.low, "high": loss.high, "questions": len(gold)},
            "changed": sum(not same_answers(mine[key], others[key]) for key in gold),
        }

    def _speed(self, variant: Variant, folder: Path) -> dict[str, Any]:
        """Returns seconds of the rounds, of the references too, and the size of the model."""
        source = self.models.source
        references = [speed.Computation(source, p, 1, BATCH_SIZE) for p in variant.references]
        own = speed.Computation(folder, variant.profile, variant.instances, BATCH_SIZE)
        timed, *others = speed.measure([own, *references], self.rounds)
        first, config = timed.loaded[0], load_config(folder)
        seconds = [other.seconds for other in others]
        return {
            **{"weights": first.weights, "gflop": window_gflop(config, first.length)},
            **{"length": first.length, "precision": first.precision, "windows": timed.windows},
            **{"cores": [one.cores for one in timed.loaded], "seconds": timed.seconds},
            "reference_seconds": dict(zip(variant.references, seconds, strict=True)),
            "reference_windows": BATCH_SIZE,
        }


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.compression",
        description="Measures speed and micro-F1 of a model in 8 bits, in two processes, pruned, "
        "and recovered. Other options are passed to nq train, which recovers pruned models.",
    )
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
    arguments.add_model(parser)
    parser.add_argument(
        "--prune",
        nargs="*",
        metavar="SPEC",
        help="what is pruned, each as nq convert --prune has it; default: three quarters and half "
        "of the FFN and of the heads, one and two layers less, and three mixtures",
    )
    parser.add_argument(
        "--states",
        nargs="+",
        choices=STATES,
        default=list(STATES),
        metavar="STATE",
        help=f"of pruned models: {', '.join(STATES)} (default: all)",
    )
    parser.add_argument(
        "--scores-profile",
        type=arguments.profile,
        default=Profile(),
        metavar="P",
        help="computes the answers of rows in float32, such as buckets+openvino, which is faster "
        "(default: baseline)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="try the command: a tiny model and the bundled sample"
    )
    study.add_options(parser, report.STUDY.name)
    return parser


def _check(args: argparse.Namespace) -> None:
    """Checks what the options say together.

    Raises:
        UsageError: data are missing.
        SystemExit: nq train does not know an option.
        Error: the profile for the scores rounds, or the training data are the test data.
    """
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


def _installed(rows: Sequence[Variant]) -> Iterator[Variant]:
    for row in rows:
        if missing := Profile.parse(row.profile).missing():
            names = ", ".join(missing)
            print(f"nq: {row.profile} left out: {names} not installed", file=sys.stderr)
        else:
            yield row


def compression(args: argparse.Namespace) -> int:
    """Runs the command."""
    _check(args)
    started, sample = time.time(), [bundled_sample()]
    data, dev = map(find_files, [sample, sample] if args.quick else [args.data, args.dev])
    with folders.hold(args.output, report.STUDY.kind, [*data, *dev]):
        if args.quick:
            original = in_new_process(tiny_model, args.output / "models" / "tiny")
        else:
            original = model_folder(args.model)
        training = (*(QUICK_TRAINING if args.quick else ()), *args.unknown)
        settings = {
            "model": [original.name, weights_digest(original)],
            "data": [sha256(path) for path in data],
            "dev": [sha256(path) for path in dev],
        }
        results = study.Results.of(report.STUDY, args, training=list(training), **settings)
        speeds = study.Results.of(report.STUDY, args, SPEEDS, **settings)
        measured = Compression(
            Models(args.output / "models", original, tuple(data), training),
            dev,
            args.output / "runs",
            args.rounds,
            str(args.scores_profile),
            results,
            speeds,
        )
        _measure_all(measured, variants(_prunings(args, original), args.states))
        return study.finish(report.STUDY, args, results, started)


def _prunings(args: argparse.Namespace, original: Path) -> Sequence[str]:
    """Returns what is pruned: by the options, or by default."""
    if args.prune is not None:
        return list(args.prune)
    shape = load_config(original)
    sizes = shape.num_attention_heads, shape.intermediate_size, shape.num_hidden_layers
    return [QUICK_PRUNE] if args.quick else prunings(*sizes)


def _measure_all(measured: Compression, rows: Sequence[Variant]) -> None:
    """Measures the rows that are missing, and then those of the best pruned model."""
    known = list(_installed(rows))
    with terminal.progress_bar("compression", "rows") as bar:

        def add(variants: Sequence[Variant]) -> None:
            for measure in (measured.time, measured.judge):
                for variant in variants:
                    measure(variant)
                    bar(1, 2 * (len(known) + 2))

        add(known)
        add(list(_best(measured.results)))


def _best(results: study.Results) -> Iterator[Variant]:
    """Yields the rows that depend on others, once these are measured."""
    yield from _installed(best_variants(results.rows))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return terminal.run(compression, parser(), argv, pass_on=True)


if __name__ == "__main__":
    raise SystemExit(main())
