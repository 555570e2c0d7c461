"""A Chromium without a window, driven by the DevTools protocol through two pipes."""

import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.child_processes import PATIENCE_S

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium to render the page")


class Browser:
    """One tab of a running Chromium.

    Args:
        process: the browser.
        commands, answers: descriptors of its pipes.

    Attributes:
        urls: every address that a page in this tab has requested.
        messages: errors of scripts in this tab and what they logged.
    """

    def __init__(self, process: subprocess.Popen[bytes], commands: int, answers: int) -> None:
        self.process, self._commands, self._answers = process, commands, answers
        self._numbers, self._buffer = itertools.count(1), b""
        self._events: list[dict[str, Any]] = []
        self.new_tab()

    def new_tab(self) -> None:
        """Goes on with a new tab, so that what pages of the former one still do is not noted."""
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self.urls: list[str] = []
        self.messages: list[str] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Calls a method of the protocol and returns its result."""
        number = next(self._numbers)
        session = {"sessionId": self._session} if self._session else {}
        message = {"id": number, "method": method, "params": params, **session}
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], PATIENCE_S)
            assert ready, "Chromium does not answer"
            data = os.read(self._answers, 1 << 20)
            assert data, "Chromium has ended"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        if message.get("sessionId") != self._session:
            return
        params = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.urls.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                self.messages.append(json.dumps(params["exceptionDetails"]))
            case "Log.entryAdded":
                self.messages.append(params["entry"]["text"])
            case "Runtime.consoleAPICalled":
                self.messages.append(json.dumps(params["args"]))
            case "Page.loadEventFired":
                self._events.append(message)

    def open(self, url: str) -> None:
        """Opens a page and waits until it is loaded."""
        self._events.clear()
        self.call("Page.navigate", url=url)
        while not self._events:
            self._read()

    def size(self, width: int, height: int = 900, dark: bool = False) -> None:
        """Sets the size of the window in CSS pixels, and the color scheme."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def run(self, script: str) -> Any:
        """Returns the JSON value of an expression in the page; waits for a promise."""
        result = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Waits until an expression in the page is true."""
        self.run(
            "new Promise(done => { const look = () => "
            f"({condition}) ? done() : setTimeout(look, 10); look(); }})"
        )


@contextlib.contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Starts a Chromium with a profile in an empty folder; it ends with the block."""
    to_browser, commands = os.pipe()
    answers, from_browser = os.pipe()
    process = subprocess.Popen(
        [
            # the browser reads commands from descriptor 3 and writes answers to 4
            *("/bin/bash", "-c", f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'),
            *(str(CHROMIUM), "--headless", "--no-sandbox", "--hide-scrollbars", "--disable-gpu"),
            *("--remote-debugging-pipe", "--no-first-run", "--disable-background-networking"),
            *("--disable-component-update", "--disable-sync", f"--user-data-dir={profile}"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(to_browser, from_browser),
    )
    os.close(to_browser)
    os.close(from_browser)
    try:
        yield Browser(process, commands, answers)
    finally:
        process.terminate()
        process.wait()
        os.close(commands)
        os.close(answers)
