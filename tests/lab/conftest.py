"""Questions for all comparisons."""

from pathlib import Path

import pytest

from tests.support import nq_records

QUESTIONS = 10


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    records = [nq_records.simplified(i, words=4 + 5 * i) for i in range(1, QUESTIONS + 1)]
    return nq_records.write_lines(tmp_path_factory.mktemp("data") / "questions.jsonl", records)
