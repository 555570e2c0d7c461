"""The halves of dev: decisions are fitted to the examples with even ids and measured on the odd."""

import argparse

from nq.records import ExampleId

REMAINDERS = {"even": 0, "odd": 1}


def add_half(parser: argparse.ArgumentParser, default: str) -> None:
    """Adds ``--half``."""
    parser.add_argument(
        "--half",
        choices=(*REMAINDERS, "all"),
        default=default,
        help=f"examples that count, by their ids; all are scored (default: {default})",
    )


def in_half(example_id: ExampleId, half: str) -> bool:
    """Returns whether an example belongs to a half; ids that are not numbers are in neither.

    >>> in_half(4, "even"), in_half(4, "odd"), in_half("a", "odd"), in_half("a", "all")
    (True, False, False, True)
    """
    return half == "all" or (isinstance(example_id, int) and example_id % 2 == REMAINDERS[half])
