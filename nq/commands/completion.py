"""``nq completion``: prints a script that completes commands, options and files in a shell."""

from __future__ import annotations

import argparse
import importlib

from nq.commands import arguments, terminal
from nq.commands.main import COMMANDS, module_of
from nq.config import AUTO
from nq.inference.profile import BASELINE, OPTIMIZATIONS

PROFILE = "P"
PATHS = ("DIR", "DST", "FILE", "FOLDER", "MODEL", "PATH", "QUESTION, FILE", "SRC")
"""Placeholders of arguments that are paths."""


def parser() -> terminal.Parser:
    """Returns the parser of the command."""
    import shtab

    parser = terminal.Parser(
        prog="nq completion",
        description="Prints a script that completes commands, options and file names. A shell "
        "reads it at its start, or from the folder of its completions.",
        examples=('eval "$(nq completion bash)"', "nq completion zsh > ~/.zfunc/_nq"),
    )
    parser.add_argument("shell", choices=shtab.SUPPORTED_SHELLS, help="whose language to use")
    arguments.add_verbose(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Makes a parser with all commands and options, and prints its script."""
    import shtab

    names = shtab.cmd(f"echo {AUTO} {BASELINE} {' '.join(OPTIMIZATIONS)}")
    values = {**dict.fromkeys(PATHS, shtab.FILE), PROFILE: names}
    root = argparse.ArgumentParser(prog="nq")
    commands = root.add_subparsers()
    for name, text in COMMANDS.items():
        own = importlib.import_module(module_of(name)).parser()
        for action in own._actions:  # argparse has no public list of them
            if action.metavar in values:
                action.complete = values[action.metavar]
        commands.add_parser(name, help=text, parents=[own], add_help=False)
    print(shtab.complete(root, args.shell))
    return 0
