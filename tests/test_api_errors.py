"""Tests the errors of the public API: wrong arguments, files, profiles and readers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nq
from nq.config import CascadeDecision
from nq.runs.config import Beam
from nq.training.config import TrainConfig
from tests.test_api import HTML

SAMPLE = [nq.bundled_sample()]
LOCAL = Beam("FnApiRunner")


@pytest.fixture(scope="module")
def page() -> nq.Page:
    return nq.page_from_html(HTML)


@pytest.fixture(scope="module")
def tiny_reader(tiny_model: Path) -> Iterator[nq.Reader]:
    with nq.load(tiny_model, profile="baseline") as reader:
        yield reader


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda r, p: r.ask(None, p), "question is None: expected a text"),
        (lambda r, p: r.ask(" \n", p), "expected a text that is not empty"),
        (lambda r, p: r.ask("who", 5), "page is 5"),
        (lambda r, p: r(["who"], ["it", "it"]), "context is .*: expected one, or 1 in a list"),
        (lambda r, p: r("who", "it", top_k=0), "top_k is 0"),
        (lambda r, p: r.ask("who", p, -1), "top is -1"),
        (lambda r, p: list(r.predict([p])), "an element of examples is"),
    ],
)
def test_bad_arguments_of_a_reader(
    use: Callable[[nq.Reader, nq.Page], object],
    message: str,
    tiny_reader: nq.Reader,
    page: nq.Page,
) -> None:
    with pytest.raises(ValueError, match=message):
        use(tiny_reader, page)
    assert tiny_reader.ask("who", page)  # the reader still works


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda nq: nq.load(profile=5), "profile is 5"),
        (lambda nq: nq.load(batch_size=0), "batch_size is 0"),
        (lambda nq: nq.Job("dev.jsonl"), "files is 'dev.jsonl'"),
        (lambda nq: nq.Job(SAMPLE, compute=nq.Compute(instances=0)), "instances .* at least 1"),
        (lambda nq: nq.Job(SAMPLE, compute=nq.Compute(instances="two")), "instances is 'two'"),
        (lambda nq: nq.Job(SAMPLE, formats=["xml"]), "unknown format xml"),
        (lambda nq: nq.Job(SAMPLE, beam=LOCAL, profile="auto"), "profile is 'auto'"),
        (lambda nq: nq.Job(SAMPLE, beam=LOCAL, keep_scores=True), "keep_scores is True"),
        (lambda nq: nq.Job(SAMPLE, beam=LOCAL, compute=nq.Compute(instances=2)), "instances is 2"),
        (lambda nq: nq.find_model(second_model="r", read_blocks=True), "read_blocks is True"),
        (lambda nq: nq.find_model(decision="default"), "decision is 'default'"),
        (lambda nq: nq.find_model(decision=CascadeDecision()), "is for two models"),
        (lambda nq: nq.run("dev.jsonl", limit=0), "limit must be at least 1, got 0"),
        (lambda nq: nq.evaluate(None, "x"), "gold is None"),
        (lambda nq: nq.read_page(SAMPLE[0], "none"), "none of the 40 records"),
        (lambda nq: nq.read_examples(None), "found None instead of a path"),
        (lambda _: TrainConfig.from_dict({"epochs": "2"}), "epochs is .2."),
    ],
)
def test_bad_arguments(use: Callable[[Any], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        use(nq)


def test_a_job_is_changed_by_replacing_its_fields() -> None:
    job = nq.Job(SAMPLE, profile="xla+mixed", formats="nbest,kaggle", against="first")
    assert (str(job.profile), job.formats) == ("mixed+xla", ("kaggle", "nbest"))
    assert job.against == Path("first")
    assert replace(job, profile="grappler").optimizations == nq.Profile.parse("grappler")
    assert replace(job, compute=nq.Compute(batch_size=4)).files == job.files == (str(SAMPLE[0]),)
    with pytest.raises(ValueError, match="batch_size must be"):
        replace(job, compute=nq.Compute(batch_size=0))
    assert nq.Job(iter(SAMPLE)).files == job.files
