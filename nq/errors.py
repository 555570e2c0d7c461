"""The exception for everything that a user can correct."""


class Error(RuntimeError):
    """A command or call cannot continue; the text says why and what to do next.

    Commands print the text in one line and exit with code 1.
    """
