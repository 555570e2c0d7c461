"""Studies of speed, memory and quality, and the commands that make the sample and the model."""

from typing import Any

from nq import __version__  # noqa: F401  # ends the command with one line where nq is not installed

Values = dict[str, Any]
"""JSON values, arrays or others by their names."""
