"""Options of the commands that run a model: which one, under which profile."""

from __future__ import annotations

import argparse
from pathlib import Path

from nq.inference.profile import Profile, describe

DEFAULT_PROFILE = "grappler"
AUTO = "auto"
PROFILES_HELP = f"profiles, joined by '+' in any order:\n{describe()}"


def add_profile(parser: argparse.ArgumentParser, auto: bool = False) -> None:
    """Adds ``--profile``; the parser's epilog should be ``PROFILES_HELP``.

    Args:
        parser: a command's.
        auto: whether ``auto`` is a profile there; it is kept as that word.
    """
    also = f", or {AUTO}: the fastest here that keeps to the answers" if auto else ""
    parser.add_argument(
        "--profile",
        type=lambda text: text if auto and text == AUTO else profile(text),
        default=Profile.parse(DEFAULT_PROFILE),
        metavar="P",
        help=f"optimizations to run under (default: {DEFAULT_PROFILE}){also}; see below",
    )


def add_model(parser: argparse.ArgumentParser) -> None:
    """Adds ``--model``."""
    parser.add_argument(
        "--model", type=Path, metavar="DIR", help="model folder; default: the bundled model"
    )


def profile(text: str) -> Profile:
    """An argument type."""
    try:
        return Profile.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
