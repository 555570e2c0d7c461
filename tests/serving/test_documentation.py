"""Runs the examples of docs/serving.md against a real server."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import orjson
import pytest

from nq.config import ServeConfig
from tests.serving.running import ROOT, RunningServer

pytestmark = pytest.mark.slow
TEXT = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```bash\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
SHOWN = re.findall(r'"(\w+)": ', re.findall(r"^```\n(\{\"question.*?)^```", TEXT, re.M | re.S)[0])
DEFAULT = f"http://{ServeConfig.host}:{ServeConfig.port}"


def run(block: str, server: RunningServer, folder: Path) -> list[bytes]:
    """Returns the lines that a block of commands prints."""
    (folder / "lighthouse.txt").write_text("The lake is deep.\n\nTom was there.", encoding="utf-8")
    assert DEFAULT in block
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.replace(DEFAULT, server.url)],
        cwd=folder,
        env={**os.environ, "NQ_TOKEN": "secret"},
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout.splitlines()


@pytest.mark.parametrize("block", BLOCKS[:2], ids=["text", "file"])
def test_questions(block: str, server: RunningServer, tmp_path: Path) -> None:
    (line,) = run(block, server, tmp_path)
    answer = orjson.loads(line)
    assert answer["question"] == "when was it automated"
    assert list(answer) == [name for name in dict.fromkeys(SHOWN) if name in answer]
    assert answer["long_answer"]["text"]


def test_records(server: RunningServer, tmp_path: Path) -> None:
    first, error, second = map(orjson.loads, run(BLOCKS[2], server, tmp_path))
    assert (first["example_id"], second["example_id"]) == (1, 2)
    assert error["line"] == 2 and error["error"].startswith("not JSON: ")


def test_operation(server: RunningServer, tmp_path: Path) -> None:
    alive, metrics = (b"\n".join(run(block, server, tmp_path)) for block in BLOCKS[3:])
    assert alive.startswith(b'{"status":"ok"}{"status":"ready"}')
    for name in re.findall(r"`(nq_\w+)`", TEXT):
        assert name.encode() in metrics and name.encode() in alive
