"""A server with the routes of the Hugging Face hub that its client uses to fetch a model."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

_ROUTE = re.compile(
    r"/api/models/(?P<info>[^/]+/[^/]+)/revision/(?P<revision>.+)"
    r"|/api/models/(?P<tree>[^/]+/[^/]+)/tree/(?P<at>[^/]+)"
    r"|/(?P<repository>[^/]+/[^/]+)/resolve/(?P<commit>[^/]+)/(?P<file>.+)"
)


@dataclass
class Hub:
    """Repositories by name, and how the server answers.

    Attributes:
        folders: of the repositories, each with the files of all its revisions.
        requests: the paths that were asked for.
        status: an answer to all requests, such as 429 or 503; 0 for none.
        gated: names of repositories that need a token.
        cut_bytes: after so many bytes the body of a file ends; 0 for whole files.
        delay_s: seconds before each answer.
    """

    folders: dict[str, Path]
    requests: list[str] = field(default_factory=list)
    status: int = 0
    gated: set[str] = field(default_factory=set)
    cut_bytes: int = 0
    delay_s: float = 0.0
    address: str = ""

    def commit(self, name: str) -> str:
        """Returns the commit of a repository, which depends on its files."""
        total = hashlib.sha1(name.encode())
        for path in self.files(name):
            total.update(path.name.encode() + path.read_bytes())
        return total.hexdigest()

    def files(self, name: str) -> list[Path]:
        return sorted(path for path in self.folders[name].rglob("*") if path.is_file())


@contextlib.contextmanager
def serve(folders: dict[str, Path]) -> Iterator[Hub]:
    """Runs a hub with one revision, ``main``, of each repository."""
    hub = Hub(folders)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.requests.append(path)
            time.sleep(hub.delay_s)
            match = _ROUTE.fullmatch(path)
            parts = match.groupdict() if match else {}
            name = parts.get("info") or parts.get("tree") or parts.get("repository") or ""
            if hub.status:
                self._send(hub.status, b"{}")
            elif name not in hub.folders:
                self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            elif name in hub.gated and "Authorization" not in self.headers:
                self._send(403, b"{}", {"X-Error-Code": "GatedRepo"})
            elif (parts["revision"] or parts["at"] or parts["commit"]) not in (
                "main",
                hub.commit(name),
            ):
                self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            elif parts["info"]:
                names = [str(p.relative_to(hub.folders[name])) for p in hub.files(name)]
                siblings = [{"rfilename": one} for one in names]
                info = {"id": name, "sha": hub.commit(name), "siblings": siblings}
                self._send(200, json.dumps(info).encode())
            elif parts["tree"]:
                self._send(
                    200, json.dumps([self._entry(name, p) for p in hub.files(name)]).encode()
                )
            else:
                self._send_file(name, hub.folders[name] / str(parts["file"]))

        def _entry(self, name: str, path: Path) -> dict[str, object]:
            data = path.read_bytes()
            return {
                "type": "file",
                "path": str(path.relative_to(hub.folders[name])),
                "size": len(data),
                "oid": hashlib.sha1(data).hexdigest(),
            }

        def _send_file(self, name: str, path: Path) -> None:
            if not path.is_file():
                self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
                return
            data, status = path.read_bytes(), 200
            digest = hashlib.sha1(data).hexdigest()
            headers = {"X-Repo-Commit": hub.commit(name), "ETag": f'"{digest}"'}
            if asked := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")):
                start, status = int(asked[1]), 206
                headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
                data = data[start:]
            self._send(status, data, headers)

        def _send(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for key, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            if hub.cut_bytes and len(data) > hub.cut_bytes:
                self.wfile.write(data[: hub.cut_bytes])
                self.close_connection = True
                return
            self.wfile.write(data)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
