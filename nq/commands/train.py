"""``nq train``: trains a model from a BERT encoder and annotated questions."""

import argparse
from pathlib import Path

from nq.commands import arguments, terminal
from nq.config import WindowConfig
from nq.text import counted
from nq.training.job import (
    EVALUATE_EVERY,
    STEP,
    DistillationConfig,
    TrainConfig,
    TrainingJob,
    in_words,
)

OPTIONS = (
    *("init", "output", "limit", "workers", "card", "store", "dev", "evaluate_every"),
    *("teacher", "teacher_profile"),
)
ONLY_WITH_TEACHER = ("teacher_weight", "temperature", "teacher_profile")


def parser() -> terminal.Parser:
    parser = terminal.Parser(
        prog="nq train",
        description="Trains a model folder from a BERT encoder and annotated questions; with "
        "--compat squad a reader of plain text, which transformers loads, too. "
        "The same command resumes an interrupted training.",
        examples=(
            "nq train --data train.jsonl.gz --init bert_encoder --output my_model",
            "nq train --data train.json --init org/name --output my_reader --compat squad",
            "nq train --data train.jsonl --init small --output student --teacher my_model",
        ),
        notes=arguments.PROFILES_HELP,
        resumable=True,
    )
    arguments.add_data(parser)
    text = "initial weights: model folder of any kind, or name of a model, as for nq answer --model"
    parser.add_argument("--init", required=True, metavar="MODEL", help=text)
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="model folder")
    arguments.add_limit(parser)
    arguments.add_workers(parser)
    parser.add_argument("--card", type=Path, metavar="FILE", help="model card of the new model")
    arguments.add_store(parser)
    arguments.add_settings(parser, WindowConfig)
    arguments.add_settings(parser, TrainConfig)
    held_out = parser.add_argument_group("held-out questions")
    text = "annotated files, globs or folders; the weights with the best micro-F1 on them are kept "
    text += "(with compat squad, the best F1 of SQuAD)"
    held_out.add_argument("--dev", nargs="+", default=(), metavar="FILE", help=text)
    text = f"steps between two evaluations (default: {EVALUATE_EVERY})"
    held_out.add_argument("--evaluate-every", type=arguments.positive, metavar="N", help=text)
    teacher = parser.add_argument_group("teacher")
    text = "model whose probabilities are trained on too; it must cut text into the same pieces"
    teacher.add_argument("--teacher", metavar="MODEL", help=text)
    arguments.add_settings(teacher, DistillationConfig)
    text = "optimizations of the teacher (default: the fastest without rounding); see below"
    teacher.add_argument("--teacher-profile", type=arguments.profile, metavar="P", help=text)
    arguments.add_tracking(parser, logs_model=True)
    arguments.add_common(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    from nq.runs.result import dead_letter_lines, unread_lines
    from nq.training.train import train

    if args.evaluate_every and not args.dev:
        raise terminal.UsageError("--evaluate-every needs --dev")
    options = [name for name in ONLY_WITH_TEACHER if getattr(args, name) is not None]
    if options and args.teacher is None:
        raise terminal.UsageError(f"--{options[0].replace('_', '-')} needs --teacher")
    job = TrainingJob.of(
        args.data,
        windows=arguments.settings(WindowConfig, args),
        config=arguments.settings(TrainConfig(), args),
        distillation=arguments.settings(DistillationConfig(), args),
        pages=arguments.pages(args),
        **{name: value for name in OPTIONS if (value := getattr(args, name))},
    )
    result = train(job, track=arguments.tracking_config(args))
    if args.json:
        terminal.print_json(result.to_dict())
        return 0
    counts = result.prepared.counts
    print(
        f"trained {result.steps} steps of {job.config.batch_size} of {counts.windows} "
        f"windows to loss {result.loss:.3f}; model in {result.output}"
    )
    if result.best:
        figures = in_words(result.best)
        print(f"weights of step {result.best[STEP]}, on held-out questions: {figures}")
    if counts.without_windows:
        questions = counted(counts.without_windows, "question")
        print(f"{questions} gave no window: no gold in the page, or negatives not drawn")
    unread = unread_lines(counts.truncated_pages, counts.unread_blocks)
    for line in (*unread, *dead_letter_lines(result.prepared.dead_letter_file)):
        print(line)
    return 0
