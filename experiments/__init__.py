"""Studies of speed, memory and quality, and the commands that make the sample and the model."""

from nq import __version__  # noqa: F401  # ends the command with one line where nq is not installed
