"""A server with the routes of the Hugging Face hub that its client uses to fetch files."""

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
    r"/(?P<api>api/models/|api/(?=datasets/))?(?P<name>(?:datasets/)?[^/]+/[^/]+)"
    r"(?:/(?P<verb>revision|tree|resolve)/(?P<commit>[^/]+)(?:/(?P<file>.+))?)?"
)


@dataclass
class Hub:
    """Repositories with one revision, ``main``, and how the server answers.

    Attributes:
        folders: the folders of models ``org/name`` and of data ``datasets/org/name``.
        requests: the method and the path of each request.
        status: an answer to all requests, such as 429 or 503; 0 for none.
        gated: names of repositories that need a token.
        delay_s: seconds before each answer.
        sizes: sizes of files that the server claims, by name.
        names: names of files that the server claims besides.
        sha: a commit that it claims.
    """

    folders: dict[str, Path]
    requests: list[str] = field(default_factory=list)
    status: int = 0
    gated: set[str] = field(default_factory=set)
    delay_s: float = 0.0
    sizes: dict[str, int] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    sha: str = ""
    address: str = ""

    def commit(self, name: str) -> str:
        """Returns the commit of a repository, which depends on its files."""
        total = hashlib.sha1(name.encode())
        for path in self.files(name):
            total.update(path.name.encode() + path.read_bytes())
        return total.hexdigest()

    def files(self, name: str) -> list[Path]:
        return sorted(path for path in self.folders[name].rglob("*") if path.is_file())

    def entries(self, name: str) -> list[dict[str, object]]:
        """Returns the files of a repository as its tree lists them."""
        entries = list[dict[str, object]]()
        for path in self.files(name):
            data, file = path.read_bytes(), str(path.relative_to(self.folders[name]))
            size, digest = self.sizes.get(file, len(data)), hashlib.sha1(data).hexdigest()
            entries.append({"type": "file", "path": file, "size": size, "oid": digest})
        return entries + [
            {"type": "file", "path": one, "size": 1, "oid": "0"} for one in self.names
        ]


@contextlib.contextmanager
def serve(folders: dict[str, Path]) -> Iterator[Hub]:
    """Runs a hub on a free port."""
    hub = Hub(folders)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.requests.append(f"{self.command} {path}")
            time.sleep(hub.delay_s)
            match = _ROUTE.fullmatch(path)
            name = match["name"] if match else ""
            if hub.status:
                self._send(hub.status, b"{}")
            elif match is None or name not in hub.folders:
                self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            elif name in hub.gated and "Authorization" not in self.headers:
                self._send(403, b"{}", {"X-Error-Code": "GatedRepo"})
            elif match["commit"] not in (None, "main", hub.commit(name)):
                self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            elif match["verb"] == "resolve":
                self._send_file(name, hub.folders[name] / match["file"])
            elif match["verb"] == "tree":
                self._send(200, json.dumps(hub.entries(name)).encode())
            else:
                info = {"id": name.removeprefix("datasets/"), "sha": hub.sha or hub.commit(name)}
                self._send(200, json.dumps(info).encode())

        def _send_file(self, name: str, path: Path) -> None:
            if not path.is_file():
                self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
                return
            data = path.read_bytes()
            digest = hashlib.sha1(data).hexdigest()
            self._send(200, data, {"X-Repo-Commit": hub.commit(name), "ETag": f'"{digest}"'})

        def _send(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            own = {**(headers or {}), "Content-Length": str(len(data))}
            for key, value in own.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command != "HEAD":
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
