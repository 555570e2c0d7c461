"""Tests that the bundled sample is the one that its sources make."""

from experiments import make_sample


def test_the_committed_file_is_up_to_date() -> None:
    assert make_sample.main(["--check"]) == 0
