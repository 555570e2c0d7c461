"""Bars that show the progress of work, on a terminal and in a notebook."""

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any, Self

log = logging.getLogger(__name__)

REPORT_S = 10.0
"""Seconds between two lines about the progress where no bar is shown."""


def new_bar(**options: Any) -> Any:
    """Returns a bar of tqdm: on a terminal, in a notebook with ipywidgets, or a disabled one."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if "IPKernelApp" in getattr(shell, "config", ()) and find_spec("ipywidgets"):
        from tqdm import notebook

        return notebook.tqdm(disable=False, **options)
    from tqdm import std

    return std.tqdm(disable=None, **options)


def set_total(bar: Any, total: int) -> None:
    """Sets the total of a bar, of which the widget of a notebook has a copy."""
    bar.total = total
    if container := getattr(bar, "container", None):
        _, widget, _ = container.children
        widget.max = max(1, total)
        widget.bar_style = ""
        widget.layout.width = None


@contextlib.contextmanager
def reporting(
    progress: Callable[[int, int], None] | None,
    on_phase: Callable[[str], None] | None,
    label: str,
    unit: str,
) -> Iterator[tuple[Callable[[int, int], None], Callable[[str], None]]]:
    """Yields the receivers of progress and of phases: those given, or a bar if neither is given."""
    if progress is None and on_phase is None:
        with ProgressBar(label, unit) as bar:
            yield bar, bar.phase
    else:
        yield progress or (lambda new, total: None), on_phase or (lambda phase: None)


class ProgressBar:
    """Shows the progress as a bar; without one logs a line every ``REPORT_S`` seconds.

    It is a context manager, and shows the label before any unit is counted.
    """

    def __init__(self, label: str, unit: str) -> None:
        self._label = self._shown = label
        self._unit = f" {unit}"
        self._started = time.monotonic()
        self._done = self._total = 0
        self._bar = new_bar(desc=label, unit=self._unit)
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._beat,
            name="nq-progress",
            daemon=True,
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        self._bar.set_description_str(self._label, refresh=False)
        self._bar.close()

    def __call__(self, new: int, total: int) -> None:
        """Advances the bar by ``new`` units of a ``total`` that may still grow."""
        if not self._done:  # so that the speed is that of the units alone
            self._started = time.monotonic()
            self._bar.unpause()
        self._done = self._done + new
        self._total = total
        set_total(self._bar, total)
        self._bar.update(new)

    def phase(self, text: str) -> None:
        self._shown = text
        self._bar.set_description_str(text)  # at once, since imports may hold all threads

    def _beat(self) -> None:
        """Refreshes the bar every second; without one logs a line every ``REPORT_S`` seconds."""
        while not self._ended.wait(REPORT_S if self._bar.disable else 1.0):
            if not self._bar.disable:
                self._bar.refresh()
                continue
            elapsed = time.monotonic() - self._started
            line = f"{self._shown}, {elapsed:.0f} s"
            if self._done:
                line = self._bar.format_meter(
                    self._done, self._total, elapsed, 0, prefix=self._shown, unit=self._unit
                )
            log.info("%s", line)


class ProgressBars:
    """Shows a bar for each kind of work, one after the other."""

    def __init__(self) -> None:
        self._open = contextlib.ExitStack()
        self._work = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def __call__(self, work: str, new: int, total: int) -> None:
        """Advances the bar of a work, such as ``reading documents``, by ``new`` of ``total``."""
        if work != self._work:
            self._open.close()
            self._bar = self._open.enter_context(ProgressBar(work, work.rsplit(maxsplit=1)[-1]))
            self._work = work
        self._bar(new, total)
