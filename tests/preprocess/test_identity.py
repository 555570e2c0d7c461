"""Tests that an example's digest tells it from any other one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from nq.formats import inputs
from nq.preprocess.identity import example_digest, read_digests, write_digests
from nq.records import Candidate, Example, Span
from tests import nq_records

EXAMPLE = Example(
    7,
    "who",
    ["<P>", "Ada", "Brenn", "\ud800", "</P>"],
    [True, False, False, False, True],
    (Candidate(Span(0, 5), True),),
    token_bytes=np.arange(10).reshape(5, 2),
)


def test_any_other_example_has_another_digest() -> None:
    others = [
        EXAMPLE,
        replace(EXAMPLE, example_id="7"),
        replace(EXAMPLE, example_id=8),
        replace(EXAMPLE, question="whom"),
        replace(EXAMPLE, tokens=["<P>", "Ada", "Brenn", "\ud801", "</P>"]),
        replace(EXAMPLE, tokens=["<P>", "Ada Brenn", "", "\ud800", "</P>"]),
        replace(EXAMPLE, is_html=[True, False, False, True, True]),
        replace(EXAMPLE, candidates=(Candidate(Span(0, 5), False),)),
        replace(EXAMPLE, candidates=(Candidate(Span(0, 4), True),)),
        replace(EXAMPLE, candidates=()),
        replace(EXAMPLE, token_bytes=None),
        replace(EXAMPLE, token_bytes=np.arange(1, 11).reshape(5, 2)),
    ]
    digests = {example_digest(example) for example in others}
    assert len(digests) == len(others)
    assert all(-(1 << 63) <= digest < 1 << 63 for digest in digests)
    assert example_digest(replace(EXAMPLE)) == example_digest(EXAMPLE)


def test_a_record_has_the_same_digest_each_time_it_is_read(tmp_path: Path) -> None:
    records = [nq_records.simplified(i, words=30) for i in range(5)]
    path = nq_records.write_lines(tmp_path / "a.jsonl.gz", [*records, nq_records.v1(9)])
    once, twice = ([example_digest(e) for e in inputs.read_examples(path)] for _ in range(2))
    assert once == twice
    assert len(set(once)) == 6


def test_digests_are_read_as_they_were_written(tmp_path: Path) -> None:
    digests = [((0, 1), -(1 << 63)), ((0, 2), (1 << 63) - 1), ((3, 1), 0)]
    for some in (digests, []):
        write_digests(tmp_path / "examples.npy", some)
        assert read_digests(tmp_path / "examples.npy") == dict(some)
