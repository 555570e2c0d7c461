"""What is read of a page: enough for its answer, nothing twice."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.bundle import bundled_sample
from nq.config import DecisionConfig, RankingWeights
from nq.errors import Error
from nq.formats import inputs
from nq.formats.predictions import encode_prediction
from nq.inference import prune
from nq.inference.profile import Profile
from nq.model.checkpoint import load_settings
from nq.postprocess import position_prior
from nq.postprocess.decision import decide
from nq.postprocess.margin import closeness
from nq.postprocess.ranking import Blocks, evidence
from nq.postprocess.spans import pairs
from nq.preprocess.windows import windows
from nq.reader import answerer
from nq.records import READ, SCORE_COLUMNS, Candidate, Example, IntArray, Span, WindowScores
from nq.runs.job import PREDICTIONS, Job, Report
from nq.runs.run import run
from tests.postprocess import synthetic_pages

LENGTH, OFFSET, K = 14, 2, 4


@pytest.fixture(autouse=True, scope="module")
def small_pages_are_whole() -> Iterator[None]:
    """Else where a block stands would count on none of these."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(position_prior, "WHOLE", 2)
        yield


def page(draw: np.random.Generator) -> IntArray:
    """The token map of a page: contexts behind markers, words of some pieces, in windows.

    Mostly contexts come in order, and apart; now and then one repeats the text of another, and
    some have so many pieces without a token that a window has no text.
    """
    pieces: list[int] = []
    contexts, doc = list[list[int]](), 0
    for _ in range(draw.integers(0, 6)):
        doc += int(draw.integers(0, 9))
        words = [w for w in range(doc, doc + int(draw.integers(1, 25))) if draw.random() < 0.9]
        doc += len(words) + 1
        contexts.append(words)
    if draw.random() < 0.3:
        draw.shuffle(contexts)
    if contexts and draw.random() < 0.2:
        contexts.append(contexts[0])
    for words in contexts:
        pieces += [-1] * int(draw.choice([2, 2, 2, 30]))
        pieces += np.repeat(np.array(words, int), draw.integers(1, 4, len(words))).tolist()
    pieces += [-1] * int(draw.choice([0, 0, 1, 20]))
    room = int(draw.integers(1, LENGTH - OFFSET + 1))
    found = windows(len(pieces), room, int(draw.integers(1, room + 3)))
    token_map = np.full((len(found), LENGTH), -1)
    for row, (start, end) in zip(token_map, found, strict=True):
        row[OFFSET : OFFSET + end - start] = pieces[start:end]
    return token_map


@dataclass
class Book:
    """Some pages one after the other, their scores, and the windows that were asked for."""

    token_map: IntArray
    pages: list[slice]
    examples: list[Example]
    scores: WindowScores
    decision: DecisionConfig
    asked: list[IntArray] = field(default_factory=list)

    def score(self, numbers: IntArray) -> dict[str, Any]:
        assert (np.diff(numbers) > 0).all()
        self.asked.append(numbers)
        return {name: getattr(self.scores, name)[numbers] for name in SCORE_COLUMNS}

    def read(self, near: float = prune.NEAR) -> tuple[WindowScores, IntArray]:
        """Every window's scores, and the numbers of those that were read."""
        self.asked.clear()
        found = prune.read(
            self.score,
            self.token_map,
            self.examples,
            self.pages,
            self.decision,
            prune.levels(near),
        )
        known = np.flatnonzero(found.pop(READ))
        assert known.tolist() == sorted(np.concatenate([[], *self.asked]).tolist())
        return WindowScores(**found), known


def example(seed: int, token_map: IntArray) -> Example:
    """A page with those tokens in blocks of some types, and gaps between them."""
    draw = np.random.default_rng(seed)
    n = int(token_map.max(initial=-1)) + 2
    edges = np.unique(draw.integers(0, n, 8)).tolist()
    candidates = [Candidate(Span(a, b), bool(draw.random() < 0.8)) for a, b in pairwise(edges)]
    words = draw.choice(["who", "wrote", "it", "<P>", "<Table>", "<Ul>"], n).tolist()
    return Example(seed, "who wrote", words, [word[0] == "<" for word in words], candidates)


@st.composite
def books(draw: st.DrawFn, min_pages: int = 1, max_pages: int = 3) -> Book:
    seeds = draw(st.lists(st.integers(0, 2**32 - 1), min_size=min_pages, max_size=max_pages))
    maps = [page(np.random.default_rng(seed)) for seed in seeds]
    maps = [found if len(found) else np.full((1, LENGTH), -1) for found in maps]
    token_map = np.concatenate(maps)
    pages = [slice(a, b) for a, b in pairwise(np.cumsum([0, *map(len, maps)]).tolist())]
    logits = synthetic_pages.logits(
        draw(st.integers(0, 999)), draw(st.booleans()), len(token_map), LENGTH
    )
    logits = synthetic_pages.Logits(logits.start, logits.end, logits.types, token_map)
    weights = RankingWeights(
        evidence=draw(st.sampled_from([0.05, 0.2, 1.0])),
        overlap=draw(st.sampled_from([0.0, 3.0])),
        place=draw(st.sampled_from([0.0, -5.0])),
        table=draw(st.sampled_from([0.0, -6.0])),
        null=draw(st.sampled_from([-5.0, 1.0])),
        most_evidence=draw(st.sampled_from([5.0, 30.0, 1000.0])),
    )
    thresholds = draw(st.floats(0, 1)), draw(st.floats(0, 1))
    return Book(
        token_map,
        pages,
        [example(seed, found) for seed, found in zip(seeds, maps, strict=True)],
        synthetic_pages.window_scores(logits, K, text_only=True),
        DecisionConfig(
            long_threshold=thresholds[0], short_threshold=thresholds[1], weights=weights
        ),
    )


def rows(scores: WindowScores, numbers: IntArray) -> WindowScores:
    return WindowScores(**{name: getattr(scores, name)[numbers] for name in SCORE_COLUMNS})


def assert_equal(found: WindowScores, expected: WindowScores) -> None:
    for name in SCORE_COLUMNS:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)
        assert getattr(found, name).dtype == getattr(expected, name).dtype


def held_blocks(example: Example, token_map: IntArray) -> list[set[int]]:
    """The blocks that each window holds a token of, by their candidates."""
    of_token = Blocks.of(example).of_token
    return [{int(of_token[t]) for t in row.tolist() if t >= 0} - {-1} for row in token_map]


@given(books(1, 1))
def test_coarse_windows_hold_all_the_text(book: Book) -> None:
    held = prune.text(book.token_map)
    chosen = prune.coarse(held)
    assert len(chosen) >= min(1, len(held))
    assert chosen.tolist() == sorted(set(chosen.tolist())) and set(chosen) <= set(range(len(held)))
    np.testing.assert_array_equal(held[chosen].any(axis=0), held.any(axis=0))
    assert len(chosen) <= 1 or held[chosen].any(axis=1).all()


@given(st.integers(1, 600), st.integers(64, 120))
def test_windows_are_as_far_apart_as_the_overlap_allows(n_pieces: int, room: int) -> None:
    found = windows(n_pieces, room, 32)
    token_map = np.array([[*range(a, b), *[-1] * (room - b + a)] for a, b in found])
    chosen = prune.coarse(prune.text(token_map))
    steps = np.diff(chosen)
    widest = (room - math.ceil(prune.OVERLAP * room)) // 32
    assert (steps[:-1] == widest).all() and (steps <= widest).all() and chosen[-1] == len(found) - 1


def test_contexts_out_of_order_and_windows_without_text() -> None:
    def row(*tokens: int) -> list[int]:
        return [*tokens, *[-1] * (4 - len(tokens))]

    turned = np.array([row(6, 7, 8, 9), row(8, 9, 0, 1), row(0, 1, 2, 3), row(2, 3, 4, 5)])
    assert prune.coarse(prune.text(turned)).tolist() == [0, 2, 3]
    behind = np.array([row(0, 1, 2, 3), row(4, 5, 6, 7), row()])
    assert prune.coarse(prune.text(behind)).tolist() == [0, 1]
    assert prune.coarse(prune.text(np.full((3, 4), -1))).tolist() == [0]
    assert prune.coarse(prune.text(np.empty((0, 4), int))).tolist() == []


@given(books())
def test_no_window_is_asked_twice(book: Book) -> None:
    book.read()
    asked = np.concatenate(book.asked)
    assert len(np.unique(asked)) == len(asked) <= len(book.token_map)
    assert all(len(numbers) for numbers in book.asked)


@given(books())
def test_what_was_read_stays_and_the_others_say_nothing(book: Book) -> None:
    found, known = book.read()
    assert_equal(rows(found, known), rows(book.scores, known))
    others = np.setdiff1d(np.arange(len(book.token_map)), known)
    assert (found.start_doc[others] == -1).all() and (found.end_doc[others] == -1).all()
    assert len(pairs(rows(found, others))) == 0
    assert found.start_doc.dtype == book.scores.start_doc.dtype


@given(books(), st.one_of(st.floats(0, 10), st.just(math.inf)))
def test_what_may_change_the_answer_was_read(book: Book, near: float) -> None:
    found, known = book.read(near)
    weights = book.decision.weights
    for example, page in zip(book.examples, book.pages, strict=True):
        read = [n for n in range(page.start, page.stop) if n in known]
        said = evidence(example, rows(found, np.array(read)), 30)
        utility = said.utility(weights)
        best = max([weights.null, *utility.tolist()])
        close = {b for b, u in zip(said.blocks.tolist(), utility, strict=True) if u > best - near}
        sure = closeness(example, rows(found, np.array(read)), book.decision)
        level = next((one for one in prune.levels(near) if sure >= one.sure), None)
        if level is None:
            assert len(read) == page.stop - page.start
            continue
        page_blocks = Blocks.of(example)
        prior = dict(
            zip(
                page_blocks.candidates.tolist(),
                page_blocks.utility(weights) + weights.most_evidence,
                strict=True,
            )
        )
        held = held_blocks(example, book.token_map[page])
        coarse = prune.coarse(prune.text(book.token_map[page])).tolist()
        for number, inside in enumerate(held):
            if page.start + number in known:
                continue
            assert not inside & close
            if number in coarse:
                assert all(prior[block] < best - level.far for block in inside)


@given(books())
def test_pages_do_not_meddle(book: Book) -> None:
    together, _ = book.read()
    for example, page in zip(book.examples, book.pages, strict=True):
        numbers = np.arange(page.start, page.stop)
        alone = Book(
            book.token_map[page],
            [slice(0, len(numbers))],
            [example],
            rows(book.scores, numbers),
            book.decision,
        )
        assert_equal(alone.read()[0], rows(together, numbers))


def test_a_page_is_done_once_its_answer_is_sure() -> None:
    n = 40
    token_map = np.arange(n * 4).reshape(n, 4)
    candidates = [Candidate(Span(4 * i, 4 * i + 4), True) for i in range(n)]
    tokens = [*["<P>", "word", "word", "word"] * (n - 1), "<Table>", "word", "word", "word"]
    example = Example(1, "who", tokens, [t[0] == "<" for t in tokens], candidates)
    start = np.full((n, 4), -9.0, np.float32)
    start[0, 1] = 9.0
    types = np.zeros((n, 5), np.float32)
    doc = np.where(np.arange(4) == 0, -1, token_map)
    scores = synthetic_pages.window_scores(
        synthetic_pages.Logits(start, start, types, doc), 2, text_only=True
    )
    weights = RankingWeights(evidence=0.5, place=-3.0, most_evidence=10.0)
    decision = DecisionConfig(weights=weights, long_threshold=0.5, short_threshold=0.1)
    book = Book(doc, [slice(0, n)], [example], scores, decision)
    found, known = book.read()
    assert known.tolist() == [0, 1, 2, n - 1]  # the first blocks of their types
    mine, whole = decide(example, found, decision), decide(example, scores, decision)
    assert (mine.long, mine.shorts, mine.yes_no) == (whole.long, whole.shorts, whole.yes_no)


QUESTIONS = 6


def job(model: Path, folder: Path, profile: str, **options: Any) -> Job:
    settings = load_settings(model)
    weights = RankingWeights(overlap=3.0, most_evidence=2.0)
    windows = replace(settings.windows, doc_stride=4)
    return Job(
        (str(bundled_sample()),),
        model,
        Profile.parse(profile),
        windows,
        replace(settings.decision, weights=weights),
        8,
        folder,
        limit=QUESTIONS,
        **options,
    )


def answers(report: Report) -> Any:
    return json.loads((report.output / PREDICTIONS).read_text())["predictions"]


def test_shards_and_an_interruption_change_nothing(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = run(job(tiny_model, tmp_path / "one", "refine+buckets"))
    assert one.read_windows < one.windows
    shards = run(job(tiny_model, tmp_path / "shards", "refine+buckets", workers=2))
    assert len(list(shards.output.glob("windows-*/*.tfrecord"))) == 2
    assert answers(shards) == answers(one)

    monkeypatch.setattr(prune, "PARTS_AT_ONCE", 1)
    real, calls = prune.scores, list[int]()

    def interrupted(*args: Any) -> Any:
        calls.append(len(args[2]))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(prune, "scores", interrupted)
    stopped = job(tiny_model, tmp_path / "stopped", "refine+buckets")
    with pytest.raises(KeyboardInterrupt):
        run(stopped)
    again = run(stopped)
    assert again.resumed_windows > 0
    assert answers(again) == answers(one)


def test_one_page_in_memory_is_read_alike(tiny_model: Path, tmp_path: Path) -> None:
    asked = job(tiny_model, tmp_path, "refine")
    expected = answers(run(asked))
    examples = [item for _, item in inputs.read_records(asked.files[0], limit=QUESTIONS)]
    with answerer(tiny_model, asked.profile, asked.windows, asked.decision) as loaded:
        found = [loaded.answer(e).prediction for e in examples if isinstance(e, Example)]
        assert loaded.predictor.read_windows > 0
    for prediction, wanted in zip(found, expected, strict=True):
        mine = encode_prediction(prediction)
        assert mine["long_answer"] == wanted["long_answer"]
        assert mine["short_answers"] == wanted["short_answers"]


def test_a_rule_that_weighs_no_blocks_needs_all_windows(tiny_model: Path, tmp_path: Path) -> None:
    asked = job(tiny_model, tmp_path, "refine")
    other = replace(asked, decision=DecisionConfig("bert-joint"))
    with pytest.raises(Error, match="bert-joint does not tell close calls: leave refine out"):
        run(other)
    with (
        pytest.raises(Error, match="leave refine out"),
        answerer(tiny_model, other.profile, other.windows, other.decision),
    ):
        pass
