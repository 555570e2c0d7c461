"""Coarse to fine: all text is seen, nothing is asked twice, nothing is said of others' text."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.formats.results import SCORES, Results
from nq.model import refine
from nq.model.batches import Shape
from nq.model.engine import Task
from nq.model.network import Network
from nq.model.predict import predict
from nq.model.predictor import Predictor
from nq.model.profile import Profile
from nq.model.selection import Selection
from nq.postprocess.answers import pairs
from nq.preprocess.windows import windows
from nq.records import Features, IntArray, Source, WindowScores
from tests import tiny
from tests.postprocess import made

LENGTH, OFFSET, K = 14, 2, 4


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
    examples: list[slice]
    scores: WindowScores
    asked: list[IntArray] = field(default_factory=list)

    def score(self, numbers: IntArray) -> refine.Columns:
        assert (np.diff(numbers) > 0).all()
        self.asked.append(numbers)
        return {name: getattr(self.scores, name)[numbers] for name in SCORES}

    def read(self, margin: float = 2.0, most: int | None = refine.MOST) -> WindowScores:
        """Every window's scores; afterwards ``asked`` has what was asked."""
        self.asked.clear()
        found, read = refine.read(self.score, self.token_map, self.examples, margin, most)
        assert np.flatnonzero(read).tolist() == self.known.tolist()
        return WindowScores(**found)

    @property
    def known(self) -> IntArray:
        return np.unique(np.concatenate(self.asked))

    @property
    def coarse(self) -> IntArray:
        return self.asked[0]


@st.composite
def books(draw: st.DrawFn, min_pages: int = 0, max_pages: int = 3) -> Book:
    pages_ = draw(st.lists(st.integers(0, 2**32 - 1), min_size=min_pages, max_size=max_pages))
    maps = [page(np.random.default_rng(seed)) for seed in pages_]
    token_map = np.concatenate([np.empty((0, LENGTH), int), *maps])
    ends = np.cumsum([0, *map(len, maps)]).tolist()
    examples = [slice(a, b) for a, b in pairwise(ends)]
    n = len(token_map)
    logits = made.logits(draw(st.integers(0, 999)), draw(st.booleans()), n, LENGTH)
    logits = made.Logits(logits.start, logits.end, logits.types, token_map)
    return Book(token_map, examples, made.window_scores(logits, K, draw(st.booleans())))


def best(scores: WindowScores) -> float:
    """The score of the best pair of all."""
    return float(pairs(scores).score.max(initial=-np.inf))


def rows(scores: WindowScores, numbers: IntArray) -> WindowScores:
    return WindowScores(**{name: getattr(scores, name)[numbers] for name in SCORES})


def assert_equal(found: WindowScores, expected: WindowScores) -> None:
    for name in SCORES:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)
        assert getattr(found, name).dtype == getattr(expected, name).dtype


@given(books(1, 1))
def test_coarse_windows_hold_all_the_text(book: Book) -> None:
    held = refine.text(book.token_map)
    chosen = refine.coarse(held)
    assert len(chosen) >= min(1, len(held))
    assert chosen.tolist() == sorted(set(chosen.tolist())) and set(chosen) <= set(range(len(held)))
    np.testing.assert_array_equal(held[chosen].any(axis=0), held.any(axis=0))
    assert len(chosen) <= 1 or held[chosen].any(axis=1).all()


@given(st.integers(1, 600), st.integers(64, 120))
def test_windows_are_as_far_apart_as_the_overlap_allows(n_pieces: int, room: int) -> None:
    found = windows(n_pieces, room, 32)
    token_map = np.array([[*range(a, b), *[-1] * (room - b + a)] for a, b in found])
    chosen = refine.coarse(refine.text(token_map))
    steps = np.diff(chosen)
    widest = (room - math.ceil(refine.OVERLAP * room)) // 32
    assert (steps[:-1] == widest).all() and (steps <= widest).all() and chosen[-1] == len(found) - 1


def test_contexts_out_of_order_and_windows_without_text() -> None:
    def row(*tokens: int) -> list[int]:
        return [*tokens, *[-1] * (4 - len(tokens))]

    turned = np.array([row(6, 7, 8, 9), row(8, 9, 0, 1), row(0, 1, 2, 3), row(2, 3, 4, 5)])
    assert refine.coarse(refine.text(turned)).tolist() == [0, 2, 3]
    behind = np.array([row(0, 1, 2, 3), row(4, 5, 6, 7), row()])
    assert refine.coarse(refine.text(behind)).tolist() == [0, 1]
    assert refine.coarse(refine.text(np.full((3, 4), -1))).tolist() == [0]
    assert refine.coarse(refine.text(np.empty((0, 4), int))).tolist() == []


@given(books(1), st.floats(0, 30), st.one_of(st.none(), st.integers(0, 5)))
def test_no_window_is_asked_twice(book: Book, margin: float, most: int | None) -> None:
    book.read(margin, most)
    asked = np.concatenate(book.asked)
    assert len(np.unique(asked)) == len(asked) <= len(book.token_map)
    assert len(book.asked) <= 2 and (len(book.asked) == 1 or len(book.asked[1]))
    if most == 0:
        assert len(book.asked) == 1


@given(books())
def test_with_no_bounds_every_window_with_a_best_span_is_read(book: Book) -> None:
    book.read(math.inf, None)
    _, spans = refine.evidence(rows(book.scores, book.coarse))
    for number, (start, end) in zip(book.coarse, spans.tolist(), strict=True):
        example = next(e for e in book.examples if e.start <= number < e.stop)
        for other in range(example.start, example.stop):
            tokens = set(book.token_map[other].tolist()) - {-1}
            if {start, end} <= tokens:
                assert other in book.known


@given(books(), st.floats(0, 30))
def test_windows_say_only_what_stands_in_them(book: Book, margin: float) -> None:
    found = book.read(margin)
    for number in set(range(len(book.token_map))) - set(book.known.tolist()):
        tokens = {*book.token_map[number].tolist(), -1}
        assert {*found.start_doc[number].tolist(), *found.end_doc[number].tolist()} <= tokens


@given(books(), st.floats(0, 30))
def test_windows_that_were_not_read_take_from_the_nearest_of_their_page(
    book: Book, margin: float
) -> None:
    found = book.read(margin)
    for example in book.examples:
        numbers = range(example.start, example.stop)
        there = [n for n in numbers if n in book.known]
        for number in set(numbers) - set(there):
            likest = min(there, key=lambda n: abs(n - number))
            one, other = (
                rows(s, np.array([n])) for s, n in ((found, number), (book.scores, likest))
            )
            for name in set(SCORES) - {"start_doc", "end_doc"}:
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
            for name in ("start_doc", "end_doc"):
                tokens = [t if t in book.token_map[number] else -1 for t in getattr(other, name)[0]]
                assert getattr(one, name)[0].tolist() == tokens


@given(books(), st.floats(0, 30))
def test_what_was_read_stays(book: Book, margin: float) -> None:
    found = book.read(margin)
    assert_equal(rows(found, book.known), rows(book.scores, book.known))
    assert best(found) >= best(rows(book.scores, book.coarse))
    if len(book.known) == len(book.token_map):
        assert_equal(found, book.scores)


@given(st.integers(1, 6), st.integers(0, 99))
def test_windows_that_do_not_overlap_are_all_read(n: int, seed: int) -> None:
    token_map = np.arange(n * LENGTH).reshape(n, LENGTH)
    logits = made.logits(seed, False, n, LENGTH)
    scores = made.window_scores(
        made.Logits(logits.start, logits.end, logits.types, token_map), K, True
    )
    assert_equal(Book(token_map, [slice(0, n)], scores).read(0.0), scores)


@given(books(1), st.floats(0, 9), st.floats(0, 9))
def test_a_wider_margin_reads_no_less(book: Book, one: float, other: float) -> None:
    book.read(min(one, other))
    narrow = set(book.known.tolist())
    book.read(max(one, other))
    assert narrow <= set(book.known.tolist())


@given(books(), st.floats(0, 30))
def test_pages_do_not_meddle(book: Book, margin: float) -> None:
    together = book.read(margin)
    for example in book.examples:
        numbers = np.arange(example.start, example.stop)
        alone = Book(book.token_map[example], [slice(0, len(numbers))], rows(book.scores, numbers))
        assert_equal(alone.read(margin), rows(together, numbers))


def overlapping(line: int, pieces: int) -> tuple[Source, Features]:
    """The windows of a page of so many one-piece tokens, as the tiny model reads them."""
    room = LENGTH - tiny.N_QUERY - 1
    spans = windows(pieces, room, 2)
    found = tiny.features(line, len(spans), LENGTH, pieces=LENGTH)
    ids = np.random.default_rng(line).integers(70, len(tiny.VOCABULARY), pieces)
    for row, (start, end) in enumerate(spans):
        here = slice(tiny.N_QUERY, tiny.N_QUERY + end - start)
        found.token_map[row] = -1
        found.token_map[row, here] = np.arange(start, end)
        found.input_ids[row, here] = ids[start:end]
    return Source(0, "f", line), found


@pytest.mark.parametrize("rest", ["", "+buckets"])
def test_the_profile_reads_as_the_plain_scores_say(tmp_path: Path, rest: str) -> None:
    examples = [overlapping(line, pieces) for line, pieces in ((1, 60), (2, 1), (3, 33))]
    path = tiny.write_shard(tmp_path / "windows-0.tfrecord", examples)

    def run(profile: str) -> tuple[Results, int, int]:
        predictor = Predictor(
            Task(
                Network(tiny.SHAPE, tiny.model()),
                Profile.parse(profile),
                Selection(K, text_only=True),
            ),
            Shape(4, LENGTH),
        )
        told: list[int] = []
        timing = predict(predictor, [path], tmp_path / profile, {}, told.append)
        assert sum(told) == timing.windows
        return Results(tmp_path / profile, (path,)), timing.windows, timing.read_windows

    plain, n_plain, read_plain = run("baseline" if not rest else rest[1:])
    refined, n_refined, read_refined = run(f"refine{rest}")
    assert n_plain == n_refined == read_plain > read_refined
    total = 0
    for source, features in examples:
        key = source.file_index, source.line
        n = len(features)
        book = Book(features.token_map, [slice(0, n)], plain[key])
        expected, found = book.read(refine.MARGIN), refined[key]
        total += len(book.known)
        for name in SCORES:
            np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-5)
    assert read_refined == total
