"""What tests of the studies share."""

import json
from collections.abc import Callable
from typing import Any

import pytest

RunCommand = Callable[..., Any]


@pytest.fixture
def run_command(capsys: pytest.CaptureFixture[str]) -> RunCommand:
    """Returns a function that runs a command with arguments; returns the JSON that it prints."""

    def run(main: Callable[[list[str]], int], *arguments: object) -> Any:
        assert main([*map(str, arguments), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run
