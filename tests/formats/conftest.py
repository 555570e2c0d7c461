"""Fixtures of the tests of formats."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import nq_records


@pytest.fixture(scope="session")
def vocab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nq_records.write_vocab(tmp_path_factory.mktemp("vocab"))
