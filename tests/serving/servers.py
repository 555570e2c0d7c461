"""A server in the process of the test, and a real one in a process of its own."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import httpx
import psutil

from nq.config import ServeConfig
from nq.inference.scorer import Scorer
from nq.model.model import Model
from nq.serving.app import make_app
from nq.serving.service import Answering
from tests.support.child_processes import PATIENCE_S

ROOT = Path(__file__).parents[2]
RUN = "from nq.commands.main import main\nraise SystemExit(main())"  # as python -m nq does
TOKEN = "secret"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
PAGE = (
    "The lake is deep and old.\n\nTom Hale (1931) was the keeper of the tower.\n\n"
    "The old tower is on the lake; it was lit in 1874."
)


class InProcess:
    """The application of a server without sockets, whose model runs in a thread.

    Args:
        scorer: of the windows; without one, requests wait until their time is over.
        token: which clients must send.
        settings: fields of ``ServeConfig``; by default no test waits for the end of a time limit.
    """

    def __init__(
        self,
        model: Model,
        scorer: Scorer | None = None,
        token: str | None = None,
        **settings: Any,
    ) -> None:
        config = ServeConfig(**{"timeout": PATIENCE_S, **settings})
        self.answering = Answering(model, config)
        self.answering.is_alive = lambda: True
        self.app = make_app(self.answering, token)
        self.runner = asyncio.Runner()
        if scorer:
            running = self.answering.batcher.run([scorer])
            self._batches = self.runner.get_loop().create_task(running)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.runner.close()
        self.answering.close()

    async def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Sends a request; the options are ``httpx.AsyncClient.request``'s."""
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return await http.request(method, path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.runner.run(self.send("POST", path, **options))

    def ask_at_once(self, bodies: Sequence[Any]) -> list[httpx.Response]:
        """Asks questions, each as a client of its own."""

        async def main() -> list[httpx.Response]:
            return await asyncio.gather(
                *(self.send("POST", "/v1/ask", json=body) for body in bodies)
            )

        return self.runner.run(main())

    def metric(self, name: str, **labels: str) -> float | None:
        return self.answering.metrics.get_sample_value(name, labels)


class RunningServer:
    """``nq serve`` with a token, on a free port of the loopback interface.

    By default no test waits for the end of a time limit.

    Args:
        options: of the command.
        code: runs in the process first.

    Attributes:
        process: of the server.
        url: where it answers, once ``wait`` has returned.
    """

    def __init__(self, folder: Path, model: Path, *options: str, code: str = "") -> None:
        self.log_file = folder / "log.txt"
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-c", f"{code}\n{RUN}", "serve", "--model", str(model)),
                    *("--json", "--profile", "openvino", "--port", "0"),
                    *("--timeout", str(PATIENCE_S), *options),
                ],
                cwd=folder,
                env=os.environ | {"PYTHONPATH": str(ROOT), "NQ_TOKEN": TOKEN},
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self.url = ""

    def wait(self) -> Self:
        """Waits until the server can answer questions."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()  # or nothing, where it has ended
        assert line, self.log()
        self.url = json.loads(line)["url"]
        return self

    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8")

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=PATIENCE_S, trust_env=False, headers=BEARER)

    def stream(self, path: str, *parts: bytes, end: bool = True) -> socket.socket:
        """Returns a connection over which a request with a body in parts has been sent."""
        connection = self._send(
            "POST", path, "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
        )
        connection.sendall(b"".join(map(chunk, parts)) + (b"0\r\n\r\n" if end else b""))
        return connection

    def exchange(self, method: str, path: str) -> bytes:
        """Returns all that is sent back for a request without a body, but the time of day."""
        with self._send(method, path) as connection:
            parts = iter(lambda: connection.recv(1 << 16), b"")
            return re.sub(rb"\r\ndate: .*?(?=\r\n)", b"", b"".join(parts))

    def connect(self) -> socket.socket:
        host, port = self.url.removeprefix("http://").split(":")
        return socket.create_connection((host, int(port)), PATIENCE_S)

    def _send(self, method: str, path: str, headers: str = "") -> socket.socket:
        """Returns a connection over which the head of a request has been sent."""
        connection = self.connect()
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}"
        connection.sendall(f"{head}Authorization: Bearer {TOKEN}\r\n\r\n".encode())
        return connection

    def workers(self) -> list[psutil.Process]:
        """Returns the processes of the model, without those that read pages."""
        children = psutil.Process(self.process.pid).children()
        return [one for one in children if "# instance" in " ".join(one.cmdline())]

    def metric(self, name: str) -> float:
        """Returns the value of a metric without labels."""
        with self.client() as client:
            text = client.get("/metrics").text
        match = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        assert match, text
        return float(match[1])

    def stop(self) -> int:
        """Ends the server as an administrator does; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        assert "Traceback" not in self.log() and "never retrieved" not in self.log()


def chunk(data: bytes) -> bytes:
    """Returns a part of a body in HTTP's chunked encoding."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def ask_body(question: str = "who", page: str = PAGE, **others: Any) -> dict[str, Any]:
    """Returns a request of ``/v1/ask``."""
    return {"question": question, "page": page, **others}
