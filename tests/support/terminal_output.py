"""What commands print, without the lines whose number depends on the speed of the machine."""

import re

PROGRESS = re.compile(r"^nq: .*(/s\]|s/ \w+\]|, \d+ s)\n", re.MULTILINE)
"""The line that a slow phase prints every ten seconds where stderr is no terminal."""


def without_progress(stderr: str) -> str:
    """Returns the output without the lines about progress."""
    return PROGRESS.sub("", stderr)
