"""Tests what is read from Flink's REST API, from a server with the answers of Flink 1.20."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from nq.beam.flink import check_flink, flink_job_id
from nq.errors import Error

JOBS = [
    {"jid": "a1", "name": "nq-one", "start-time": 1000, "state": "CANCELED"},
    {"jid": "b2", "name": "nq-one", "start-time": 3000, "state": "FINISHED"},
    {"jid": "c3", "name": "nq-two", "start-time": 9000, "state": "RUNNING"},
]
ANSWERS = {
    "/overview": {"taskmanagers": 2, "flink-version": "1.20.3"},
    "/jobs/overview": {"jobs": JOBS},
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert self.headers["Authorization"] in (None, "Basic bWU6c2UvY3JldA==")  # me:se/cret
        known = self.path in ANSWERS
        self.send_response(200 if known else 404)
        self.end_headers()
        self.wfile.write(json.dumps(ANSWERS.get(self.path, {})).encode())

    def log_message(self, *arguments: Any) -> None:
        """Prints nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("localhost", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"localhost:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("address", ["{}", "http://{}/", "http://me:se%2Fcret@{}"])
def test_the_newest_job_of_a_name(server: str, address: str) -> None:
    options = ["--runner=FlinkRunner", f"--flink_master={address.format(server)}"]
    check_flink(options)
    assert flink_job_id(options, "nq-one") == "b2"
    assert flink_job_id(options, "nq-two") == "c3"
    assert flink_job_id(options, "nq-three") is None


def test_a_cluster_that_is_not_there(server: str) -> None:
    options = ["--runner=FlinkRunner", "--flink_master=localhost:9"]
    with pytest.raises(Error, match=r"http://localhost:9 \(.*refused\)"):
        check_flink(options)
    assert flink_job_id(options, "nq-one") is None
    for port in ("9", "x"):
        with pytest.raises(Error, match=rf"http://\*\*\*@localhost:{port} ") as e:
            check_flink(["--runner=FlinkRunner", f"--flink_master=me:secret@localhost:{port}"])
        assert "secret" not in str(e.value)
    with pytest.raises(Error, match=r"/v9 \(Not Found\)"):
        check_flink(["--runner=FlinkRunner", f"--flink_master={server}/v9"])


def test_without_a_cluster_nothing_is_read() -> None:
    for options in ([], ["--flink_master=[local]"]):
        check_flink(["--runner=FlinkRunner", *options])
        assert flink_job_id(["--runner=FlinkRunner", *options], "nq-one") is None
