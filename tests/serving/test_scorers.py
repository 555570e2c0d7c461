"""Tests that wrapped scorers answer batches of several clients as they answer each page alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson
import pytest

import nq
from nq.report.answer import to_dict
from tests.serving.running import PAGE, RunningServer, ask_body
from tests.serving.test_answers import check_equal

PROFILE, SIZE = "mixed+prune+rescore", 32


@pytest.mark.slow
def test_two_models_with_pruning_and_rescoring(
    tiny_model: Path, tiny_mpnet: Path, tmp_path: Path
) -> None:
    """A cascade scores more windows than it is sent, and chooses them by the page."""
    words = PAGE.split()
    pages = [
        "\n\n".join(" ".join(words[n + i : n + i + 4]) for i in range(0, 12, 4)) for n in range(14)
    ]
    models: dict[str, Any] = {"second_model": tiny_mpnet, "read_blocks": 2, "batch_size": SIZE}
    with nq.load(tiny_model, profile=PROFILE, **models) as reader:
        expected = [
            orjson.loads(orjson.dumps(to_dict(reader.ask("who", nq.page_from_text(page)))))
            for page in pages
        ]
    options = ["--profile", PROFILE, "--second-model", str(tiny_mpnet), "--read-blocks", "2"]
    server = RunningServer(tmp_path, tiny_model, *options, "--batch-size", str(SIZE)).wait()
    try:
        with server.client() as client, ThreadPoolExecutor(len(pages)) as pool:
            bodies = [ask_body(page=page, format="text") for page in pages]
            answers = list(pool.map(lambda body: client.post("/v1/ask", json=body).json(), bodies))
        assert server.metric("nq_batch_windows_count") < len(pages)
        assert server.stop() == 0
    finally:
        server.kill()
    for answer, one in zip(answers, expected, strict=True):
        check_equal(answer, one)
    assert len({orjson.dumps(answer) for answer in answers}) > len(pages) // 2
