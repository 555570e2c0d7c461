"""The console script ``nq``, which runs the command that its first argument names."""

import contextlib
import importlib
import os
import signal
import sys

from nq import __version__
from nq.errors import not_installed

ABOUT = """Answers Natural Questions from whole Wikipedia pages: Beam jobs cut them into
windows, a BERT-Joint model in Keras reads them under an optimization profile,
nq_eval scores the answers, and MLflow has time and micro-F1 of every run."""
COMMANDS = {
    "answer": "answer a file of questions, score the answers, record the run",
    "ask": "ask a question about documents: text, HTML, Markdown, PDF, docx",
    "serve": "answer questions over HTTP, with a page to ask them in a browser",
    "preprocess": "turn questions and pages into TFRecords of windows",
    "train": "train a model, starting from any BERT encoder",
    "convert": "turn a checkpoint of any kind into ours, or export a model",
    "tune": "fit the decision of a model to one half of annotated data",
    "report": "write a page with the questions, figures and errors of a run",
    "compare": "measure profiles against each other: speed, quality, memory",
    "ui": "open the recorded runs in MLflow",
    "clean": "remove prepared windows, unfinished runs and caches",
    "eval": "score predictions against gold, as the official nq_eval",
}


def main(argv: list[str] | None = None) -> int:
    """Runs ``console`` as the only task of a process, which a later Ctrl-C ends at once."""
    try:
        code = console(argv)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "nq"):
            raise
        print(f"nq: error: {not_installed(package)}", file=sys.stderr)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or none
            stream.flush()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of a library's last steps
    return code


def console(argv: list[str] | None = None) -> int:
    """Runs the command that the first argument names; returns its exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        from nq.commands import terminal
        from nq.text import did_you_mean, visible

        terminal.prepare_streams()
        if not arguments or arguments[0] in ("-h", "--help"):
            print(f"usage: nq COMMAND …\n\n{ABOUT}\n")
            rows = (f"  {name:<12}{text}" for name, text in COMMANDS.items())
            print("commands:", *rows, sep="\n")
            print(f"\n'nq COMMAND --help' explains each; 'nq --version' prints {__version__}.")
            return 0
        if arguments[0] in ("-V", "--version"):
            print(__version__)
            return 0
        name, *rest = arguments
        if name in COMMANDS:
            module = importlib.import_module(f"nq.commands.{name}")
            if name == "eval":  # the official evaluation reads its arguments and reports errors
                return int(module.main(rest))
            from nq.storage import cache_folder

            # these libraries would write into the home folder
            for variable, folder in (("KERAS_HOME", "keras"), ("MPLCONFIGDIR", "matplotlib")):
                os.environ.setdefault(variable, str(cache_folder() / folder))
            return terminal.run(module.run, module.parser(), rest)
        like = did_you_mean(name, COMMANDS)
        names = ", ".join(COMMANDS)
        error = f"unknown command {visible(name)!r}{like}; known are {names}"
        print(f"nq: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # before the command handles signals itself, while it is imported
        from nq.interruption import MESSAGE

        print(MESSAGE, file=sys.stderr)
        return 130
