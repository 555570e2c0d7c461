"""The exception for everything that a user can correct."""

import sys


class Error(RuntimeError):
    """A command or call cannot continue; the text says why and what to do next.

    Commands print the text in one line and exit with code 1.
    """


class DamagedError(Error):
    """A file that nq wrote has another content, or is of another version of nq.

    Whoever can make such a file again does so; to others it is an ``Error``.
    """


class ChangedError(Error):
    """A file of the data or of a model is no longer what it was when it was opened."""


def not_installed(package: str) -> str:
    """Returns what to do where a package that nq always needs is missing: nq is not installed."""
    return (
        f"{package} is not installed for {sys.executable}: in a clone run 'make answer' once and "
        "'. .venv/bin/activate' in each shell, else 'pip install CLONE' in a virtual environment"
    )


def check_argument(condition: bool, name: str, value: object, expected: str) -> None:
    """Raises a ``ValueError`` if an argument of a public call is not as ``expected``.

    >>> check_argument(False, "limit", 0, "a whole number from 1 on, or None")
    Traceback (most recent call last):
    ValueError: limit is 0: expected a whole number from 1 on, or None
    """
    if not condition:
        raise ValueError(f"{name} is {value!r:.80}: expected {expected}")


def is_count(value: object, minimum: int = 1) -> bool:
    """Returns whether a value is a whole number from ``minimum`` on.

    >>> is_count(1), is_count(0), is_count(True), is_count("1")
    (True, False, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum
