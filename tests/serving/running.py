"""A real server in a process of its own, on a free port of the loopback interface."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import httpx
import psutil

ROOT = Path(__file__).parents[2]
START_S, END_S = 240.0, 60.0
PAGE = (
    "The lake is deep and old.\n\nTom Hale (1931) was the keeper of the tower.\n\n"
    "The old tower is on the lake; it was lit in 1874."
)
HTML = (
    "<!doctype html><title>Lake</title><script>var x = '<p>not text</p>';</script>"
    "<h1>The lake</h1><p>The <b>lake</b> is deep &amp; old.</p><p>Tom was there.</p>"
)


class RunningServer:
    """``nq serve`` with a tiny model.

    Args:
        folder: for its log.
        model: folder of the model.
        options: of the command.
        environment: variables besides those of this process.

    Attributes:
        process: of the server.
        url: where it answers, once ``wait`` has returned.
    """

    def __init__(self, folder: Path, model: Path, *options: str, **environment: str) -> None:
        self.log_file = folder / "log.txt"
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "nq", "serve", "--model", str(model), "--json"),
                    *("--profile", "baseline", "--port", "0", *options),
                ],
                cwd=folder,
                env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self.url = ""

    def wait(self) -> Self:
        """Waits until the server can answer questions."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], START_S)
        line = self.process.stdout.readline() if ready else b""
        assert line, self.log()
        self.url = json.loads(line)["url"]
        return self

    def log(self) -> str:
        """Returns what the server has written to stderr."""
        return self.log_file.read_text(encoding="utf-8")

    def client(self, **options: Any) -> httpx.Client:
        """Returns a client of the server."""
        return httpx.Client(base_url=self.url, timeout=60, trust_env=False, **options)

    def connect(self) -> socket.socket:
        """Returns a connection, for what no client would send."""
        host, port = self.url.removeprefix("http://").split(":")
        return socket.create_connection((host, int(port)), timeout=60)

    def workers(self) -> list[psutil.Process]:
        """Returns the processes of the model."""
        found: list[psutil.Process] = psutil.Process(self.process.pid).children()
        return found

    def metric(self, name: str) -> float:
        """Returns the value of a metric without labels."""
        with self.client() as client:
            text = client.get("/metrics", headers={"Authorization": "Bearer secret"}).text
        match = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        assert match, text
        return float(match[1])

    def stop(self) -> int:
        """Ends the server as an administrator does; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(END_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """Ends whatever is left."""
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def until(condition: Callable[[], bool]) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + END_S
    while not condition():
        assert time.monotonic() < end, "the condition has not come true"
        time.sleep(0.02)


def ask_body(question: str = "who", page: str = PAGE, **others: Any) -> dict[str, Any]:
    """Returns a request of ``/v1/ask``."""
    return {"question": question, "page": page, **others}


def chunked(path: str, *parts: bytes, end: bool = True) -> bytes:
    """Returns a request with a body in parts, as it is sent."""
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return head.encode() + body + (b"0\r\n\r\n" if end else b"")
