"""Beam's manners: which runner, which options, how loud, and what a failure says.

The default is ``FnApiRunner``: in this process for one worker, with worker processes for
more. The worker processes are started by a command of our own, which keeps their chatter
in a file and lets an interrupt reach only the process that the person sees.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from nq.errors import RunError


@contextlib.contextmanager
def _silent_import() -> Iterator[None]:
    """Beam warns about parts of it that are not installed, and sets up logging to do so."""
    handlers = list(logging.getLogger().handlers)
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        logging.getLogger().handlers[:] = handlers


with _silent_import():
    import apache_beam as beam
    from apache_beam.options import pipeline_options as beam_options
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner
    from apache_beam.transforms.environments import SubprocessSDKEnvironment

DEFAULT_RUNNER = "FnApiRunner"
WORKER_LOG = "workers.log"
_WORKER_PIDS = "workers.pid"
_WORKER_MODULE = "apache_beam.runners.worker.sdk_worker_main"
_WHILE_RUNNING = re.compile(r" \[while running '([^'/]*)[^']*'\]")
_ERROR_NAME = re.compile(r"^(?:RuntimeError: )?(?:[a-z_]\w*\.)*(?=[A-Z])")


class _Parser(beam_options._BeamArgumentParser):  # type: ignore[misc]
    """Knows every option that Beam knows, and raises where argparse would exit."""

    def __init__(self) -> None:
        super().__init__(allow_abbrev=False, add_help=False, conflict_handler="resolve")
        for cls in _subclasses(beam_options.PipelineOptions):
            cls._add_argparse_args(self)

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def _subclasses(cls: type) -> Iterator[type[Any]]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _subclasses(sub)


def check_options(options: Sequence[str]) -> None:
    """Checks options that are meant for Beam.

    Raises:
        ValueError: Beam does not know an option, or refuses its value.
    """
    _, unknown = _Parser().parse_known_args(list(options))
    if unknown:
        raise ValueError(f"unrecognized arguments: {' '.join(unknown)}")
