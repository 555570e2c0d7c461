"""Tables of the documentation: written from result files, checked, and recorded by a command."""

import pytest

from experiments import tables


def test_tables_of_the_repository_are_up_to_date() -> None:
    assert tables.update(tables.ROOT, write=False) == []


def test_record_needs_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert tables.main(["--check"]) == 0
    assert capsys.readouterr().out == "all tables are up to date\n"
    assert tables.main(["--show", "compression_cpu"]) == 0
    assert "| int8 + 2 instances |" in capsys.readouterr().out
    assert tables.main(["--record", "compare_60"]) == 2
    assert "the COMMAND to run" in capsys.readouterr().err
    assert tables.main(["--record", "speed", "--", "true"]) == 1
    assert "unknown table 'speed'; known are" in capsys.readouterr().err
