"""The console script ``nq``: one name for all commands."""

from __future__ import annotations

import importlib
import sys

from nq import __version__

COMMANDS = {
    "answer": ("nq.answer", "answer a file of questions, score the answers, record the run"),
    "ask": ("nq.ask", "ask a page of your own: text, HTML or a record"),
    "preprocess": ("nq.preprocess.__main__", "turn questions and pages into TFRecords of windows"),
    "train": ("nq.train", "train a model, from any BERT encoder"),
    "convert": ("nq.convert", "turn a checkpoint of any kind into ours, or export a model"),
    "tune": ("nq.tune", "choose the thresholds of a model on one half of annotated data"),
    "eval": ("eval.nq_eval", "score predictions against gold, as the official nq_eval"),
}


def _help() -> str:
    rows = "\n".join(f"  {name:<12}{text}" for name, (_, text) in COMMANDS.items())
    return (
        "usage: nq COMMAND …\n\nAnswers Natural Questions from whole Wikipedia pages.\n\n"
        f"commands:\n{rows}\n\n'nq COMMAND --help' explains each; 'nq --version' prints "
        f"{__version__}."
    )


def console(argv: list[str] | None = None) -> int:
    """Runs the command that the first argument names; its exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_help())
        return 0
    if arguments[0] in ("-V", "--version"):
        print(__version__)
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        print(
            f"nq: error: unknown command {name!r}; known are {', '.join(COMMANDS)}", file=sys.stderr
        )
        return 2
    module = importlib.import_module(COMMANDS[name][0])
    return int(module.main(rest))


if __name__ == "__main__":
    raise SystemExit(console())
