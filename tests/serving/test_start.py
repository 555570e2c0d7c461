"""Tests errors and warnings of ``nq serve`` before it serves."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Commands


@pytest.fixture(scope="module")
def used_port() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield str(taken.getsockname()[1])


@pytest.mark.parametrize(
    ("host", "message"),
    [
        ("127.0.0.1", "of 127.0.0.1 is in use: choose another one with --port"),
        ("::1%none", "cannot listen on port"),
        ("198.51.100.7", "198.51.100.7 is not an address of this machine"),
    ],
)
def test_an_address_that_cannot_be_used(
    host: str, message: str, used_port: str, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NQ_TOKEN", "secret")
    assert message in commands.error("serve", "--host", host, "--port", used_port)


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
