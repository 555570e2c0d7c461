"""Tests errors and warnings of ``nq serve`` before it serves."""

from pathlib import Path

import pytest

from tests.conftest import Commands


def test_an_empty_token_is_refused_and_none_is_a_warning_for_a_network(
    tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is missing, so that each command ends at once."""
    warning = "nq: warning: everyone who reaches 0.0.0.0 may ask: set NQ_TOKEN"

    def stderr() -> str:
        commands.out("serve", "--model", tmp_path, "--host", "0.0.0.0", code=1)
        return commands.err

    assert warning in stderr()
    monkeypatch.setenv("NQ_TOKEN", " ")
    assert "NQ_TOKEN is empty: give it a value, or unset it" in stderr()
    monkeypatch.setenv("NQ_TOKEN", "secret")
    assert warning not in stderr()
