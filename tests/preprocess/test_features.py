"""From a page to integer rows and targets: against a slower truth, and what they promise."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.config import BLOCK_SCOPE, PAGE_SCOPE, TEXT_SCOPE, WindowConfig
from nq.formats.own_data import decode_context
from nq.preprocess.contexts import contexts
from nq.preprocess.contexts import words as words_of
from nq.preprocess.features import (
    LIST_GAP,
    NO_TARGET,
    Sampling,
    chosen_annotation,
    features,
    query,
    target,
    training_features,
    window_ranges,
)
from nq.preprocess.tokenizers.base import Tokenizer
from nq.records import UNLABELLED, Annotation, AnswerType, Example, Features, Span, Target, YesNo
from tests.preprocess.synthetic_examples import few, page, pages

SMALL = WindowConfig(max_seq_length=24, doc_stride=5, max_query_length=6, max_contexts=6)
NAMES = ("input_ids", "input_mask", "segment_ids", "token_map")
shapes = st.builds(
    lambda query, room, stride: WindowConfig(query + 4 + room, stride, query, max_contexts=6),
    *(st.integers(1, 9), st.integers(1, 40), st.integers(1, 30)),
)


class Place(NamedTuple):
    """A place of a page: its piece, its document token, -1 for a marker, and its word."""

    piece: int
    doc: int
    word: int = -1


Places = list[Place]


def sequences(example: Example, tokenizer: Tokenizer, config: WindowConfig) -> list[Places]:
    """The parts of a page that windows are cut from: all of it, or each block."""
    parts = list[Places]()
    word = 0
    for context in contexts(example, config):
        part = Places()
        docs = [-1, -1, *context.doc]
        for text, doc in zip([*context.markers, *context.words], docs, strict=True):
            is_marker = doc < 0
            pieces = [tokenizer.marker_id(text)] if is_marker else tokenizer.encode([text])[0]
            part += [Place(piece, doc, word) for piece in pieces]
            word += 1
        parts.append(part)
    if config.window_scope == PAGE_SCOPE:
        return [list(itertools.chain(*parts))]
    return parts if len(parts) == 1 else parts[1:]


def cut(places: Places, room: int, stride: int) -> Iterator[Places]:
    """Yields the windows of a sequence."""
    start = 0
    while True:
        yield places[start : start + room]
        if start + room >= len(places):
            return
        start += min(room, stride)


def slowly(example: Example, tokenizer: Tokenizer, config: WindowConfig) -> dict[str, list[Any]]:
    """The rows of every window, built one place at a time."""
    asked = list(itertools.chain(*tokenizer.encode(example.question.split(" "))))
    keep = config.max_query_length - 1
    head = [tokenizer.cls_id, tokenizer.marker_id("[Q]"), *(asked[-keep:] if keep else [])]
    head += [tokenizer.sep_id] * tokenizer.separators
    room = config.max_seq_length - len(head) - 1
    segment = int(tokenizer.segments)
    rows: dict[str, list[Any]] = {name: [] for name in NAMES}
    for places in sequences(example, tokenizer, config):
        for body in cut(places, room, config.doc_stride):
            pieces = [*head, *(place.piece for place in body), tokenizer.sep_id]
            blank = [0] * (room - len(body))
            docs = [-1] * len(head) + [place.doc for place in body]
            segments = [0] * len(head) + [segment] * (len(body) + 1)
            rows["input_ids"].append(pieces + [tokenizer.pad_id] * len(blank))
            rows["input_mask"].append([1] * len(pieces) + blank)
            rows["segment_ids"].append(segments + blank)
            rows["token_map"].append(docs + [-1] * (len(blank) + 1))
    return rows


def texts_slowly(example: Example, tokenizer: Tokenizer, config: WindowConfig) -> Iterator[Places]:
    """Yields the places of every window of texts."""

    def text(places: Places, prefix: str) -> Places:
        head = [tokenizer.cls_id, *itertools.chain(*tokenizer.encode(prefix.split()))]
        return [*(Place(piece, -1) for piece in head), *places, Place(tokenizer.sep_id, -1)]

    asked = itertools.chain(*tokenizer.encode(example.question.split(" ")))
    places = [Place(piece, -1) for piece in asked]
    prefix_pieces = len(text([], config.question_prefix)) - 2
    surplus = max(0, len(places) - config.max_query_length + prefix_pieces)
    question = text(places[surplus:], config.question_prefix)
    room = config.max_seq_length - config.max_query_length - 2
    longest = room - len(text([], config.block_prefix))
    window = Places()
    for block in sequences(example, tokenizer, replace(config, window_scope=BLOCK_SCOPE)):
        words = block[2:]  # without the markers
        for body in cut(words, longest, config.doc_stride) if words else ():
            part = text(body, config.block_prefix)
            if len(window) + len(part) > room:
                yield question + window
                window = []
            window = window + part
    yield question + (window or [Place(tokenizer.sep_id, -1)])


def positives(
    example: Example, tokenizer: Tokenizer, config: WindowConfig
) -> list[tuple[int, int, int]]:
    """Start, end and type of every window, by the words of the target."""
    wanted = target(example, contexts(example, config), config)
    assert wanted is not None
    head = len(query(example.question, tokenizer, config)) + 1 + tokenizer.separators
    room = config.max_seq_length - head - 1
    found = list[tuple[int, int, int]]()
    for places in sequences(example, tokenizer, config):
        n_pieces = sum(wanted.first <= place.word <= wanted.last for place in places)
        for body in cut(places, room, config.doc_stride):
            pos = [
                head + i
                for i, place in enumerate(body)
                if wanted.first <= place.word <= wanted.last
            ]
            if pos and len(pos) == n_pieces and wanted != NO_TARGET:
                found.append((pos[0], pos[-1], int(wanted.kind)))
            else:
                found.append((0, 0, 0))
    return found


def rows(made: Features) -> dict[str, list[Any]]:
    return {name: getattr(made, name).tolist() for name in NAMES}


def labels(made: Features) -> list[tuple[int, int, int]]:
    columns: list[Any] = [made.start_positions, made.end_positions, made.answer_types]
    return list(map(tuple, np.stack(columns, axis=1).tolist()))


@few
@given(pages(), shapes, st.sampled_from([PAGE_SCOPE, BLOCK_SCOPE]))
def test_rows_against_a_slower_truth(
    tokenizers: list[Tokenizer], example: Example, config: WindowConfig, scope: str
) -> None:
    config = replace(config, window_scope=scope)
    for tokenizer in tokenizers:
        made = features(example, tokenizer, config)
        assert rows(made) == slowly(example, tokenizer, config)
        assert made.window_numbers.tolist() == list(range(made.n_windows))
        assert made.input_ids.max() < tokenizer.vocab_size


@few
@given(pages(), st.integers(8, 24), st.integers(1, 30), st.sampled_from(["", "a "]))
def test_texts_against_a_slower_truth(
    tokenizers: list[Tokenizer], example: Example, room: int, stride: int, prefix: str
) -> None:
    """Whole blocks with a prefix, in windows with room for the longest question."""
    config = WindowConfig(8 + room, stride, 5, max_contexts=6, window_scope=TEXT_SCOPE)
    config = replace(config, question_prefix="who ", block_prefix=prefix)
    for tokenizer in tokenizers:
        made = features(example, tokenizer, config)
        expected = list(texts_slowly(example, tokenizer, config))
        assert made.input_mask.sum(axis=1).tolist() == list(map(len, expected))
        for row, places in enumerate(expected):
            assert made.input_ids[row, : len(places)].tolist() == [one.piece for one in places]
            assert made.token_map[row, : len(places)].tolist() == [one.doc for one in places]
            assert set(made.input_ids[row, len(places) :].tolist()) <= {tokenizer.pad_id}
        assert not made.segment_ids.any()
        other = features(replace(example, question="is it"), tokenizer, config)
        assert [*pages_of(made, tokenizer)] == [*pages_of(other, tokenizer)]


def pages_of(made: Features, tokenizer: Tokenizer) -> Iterator[list[int]]:
    """Yields the pieces of each window behind the question."""
    for ids, n_pieces in zip(made.input_ids, made.input_mask.sum(axis=1), strict=True):
        pieces = ids[:n_pieces].tolist()
        yield pieces[pieces.index(tokenizer.sep_id) :]


@few
@given(pages(), shapes)
def test_targets_against_a_slower_truth(
    wordpiece: Tokenizer, example: Example, config: WindowConfig
) -> None:
    made = training_features(example, wordpiece, config, Sampling(1.0, 1))
    assert labels(made) == positives(example, wordpiece, config)
    assert rows(made) == rows(features(example, wordpiece, config))


@few
@given(pages(), st.floats(0, 1), st.integers())
def test_the_draw_of_negatives(
    wordpiece: Tokenizer, example: Example, share: float, seed: int
) -> None:
    def made(example: Example, share: float, unlabelled: bool = False) -> Features:
        sampling = Sampling(share, seed, unlabelled)
        return training_features(example, wordpiece, SMALL, sampling)

    every, some, none = (made(example, n) for n in (1.0, share, 0.0))
    kept = some.window_numbers.tolist()
    assert made(example, share).window_numbers.tolist() == kept
    assert set(none.window_numbers) <= set(kept) <= set(every.window_numbers)
    assert [kind for _, _, kind in labels(every) if kind] == [kind for _, _, kind in labels(none)]
    assert every.n_windows == some.n_windows == none.n_windows == len(every)
    for name in NAMES:
        assert np.array_equal(getattr(some, name), getattr(every, name)[kept])
    bare = replace(example, annotations=None)
    assert not len(made(bare, share))
    unlabelled = made(bare, share, unlabelled=True)
    negatives = made(replace(example, annotations=()), share)
    assert rows(unlabelled) == rows(negatives)
    assert labels(negatives) == [(0, 0, AnswerType.UNKNOWN)] * len(negatives)
    assert labels(unlabelled) == [(0, 0, UNLABELLED)] * len(negatives)


# --- targets ------------------------------------------------------------------------------

OURS = WindowConfig()
BERT_JOINT = WindowConfig(compat="bert-joint")
NOBODY = Annotation(None, None, (), YesNo.NONE)
TEXT = "Ice <P> ice is cold </P> <Ul> <Li> it floats </Li> <Li> it melts </Li> </Ul>"
#       0   1   2   3  4    5    6    7    8  9      10    11   12 13    14    15


def wanted(example: Example, config: WindowConfig = OURS) -> Target | None:
    return target(example, contexts(example, config), config)


def found(example: Example, config: WindowConfig = OURS) -> tuple[AnswerType, list[str]]:
    """The target's type and words."""
    it = wanted(example, config)
    assert it is not None
    sequence = words_of(contexts(example, config), config)
    return it.kind, sequence.words[it.first : it.last + 1]


@pytest.mark.parametrize(
    ("yes_no", "kind"),
    [("YES", AnswerType.YES), ("NO", AnswerType.NO), ("NONE", AnswerType.LONG)],
)
def test_without_a_short_answer_the_target_is_the_block(yes_no: str, kind: AnswerType) -> None:
    assert found(page(TEXT, long=0, yes_no=yes_no)) == (kind, ["ice", "is", "cold"])


@pytest.mark.parametrize("config", [OURS, BERT_JOINT])
@pytest.mark.parametrize(
    "example",
    [
        page(TEXT),
        page(TEXT, long=None),
        page(TEXT, long=None, yes_no="YES"),
        page(TEXT, long=2, shorts=[(8, 9)]),  # a nested candidate
        page(TEXT, long=3),
        page(TEXT, long=1, shorts=[(7, 8)]),  # nothing but a tag
        page(TEXT, long=0, shorts=[(3, 9)]),  # beyond the block
        page(TEXT, long=0, shorts=[(0, 3)]),
        page("<P> </P> <P> x </P>", long=0),  # a block that is not read
    ],
)
def test_no_target(example: Example, config: WindowConfig) -> None:
    assert wanted(example, config) == NO_TARGET


def test_yes_whose_passage_is_not_known_is_left_out() -> None:
    example = replace(page(TEXT, long=None, yes_no="YES"), answers=("yes",))
    assert wanted(example) is None


def test_the_annotation_that_is_followed() -> None:
    late_short = Annotation(Span(6, 16), 1, (Span(8, 9),), YesNo.NONE)
    early_long = Annotation(Span(1, 6), 0, (), YesNo.YES)
    early_short = Annotation(Span(1, 6), 0, (Span(2, 3),), YesNo.NONE)
    other_short = Annotation(Span(1, 6), 0, (Span(4, 5),), YesNo.NONE)
    nowhere = Annotation(Span(1, 6), None, (Span(4, 5),), YesNo.NONE)
    assert chosen_annotation([NOBODY, nowhere]) is None
    assert chosen_annotation([NOBODY, early_long]) is early_long
    assert chosen_annotation([early_long, late_short]) is late_short
    assert chosen_annotation([late_short, early_long, early_short]) is early_short
    assert chosen_annotation([other_short, early_short]) is other_short


@few
@given(pages())
def test_a_target_is_what_the_annotation_says(example: Example) -> None:
    it = wanted(example)
    chosen = chosen_annotation(example.annotations or ())
    assert it is not None
    if it == NO_TARGET:
        return
    assert chosen is not None
    assert chosen.candidate is not None
    assert example.candidates[chosen.candidate].top_level
    span = example.candidates[chosen.candidate].span
    if chosen.shorts:
        covered = sorted({i for short in chosen.shorts for i in range(short.start, short.end)})
        gaps = [b - a - 1 for a, b in itertools.pairwise(covered)]
        last = next((i for i, gap in enumerate(gaps) if gap > LIST_GAP), len(gaps))
        span = Span(covered[0], covered[last] + 1)
    gold = [i for i in range(span.start, span.end) if not example.is_html[i]]
    assert words_of(contexts(example, OURS), OURS).doc[it.first : it.last + 1] == gold


# --- targets in running text ----------------------------------------------------------------

PLAIN = WindowConfig(24, 5, 6, compat="squad")
WORDS = ("The", "old", "bridge", "(1874),", "isn't", "Øresund", "2019", "東京", "U.S.", "ice.")


def run_qa(
    chars: list[list[int]], start: int, end: int, first_pos: int, room: int
) -> list[tuple[int, int, int]]:
    """Start, end and type of every window, by the loops of transformers' ``run_qa``."""
    found = []
    for first, last in window_ranges(len(chars), room, PLAIN.doc_stride):
        offsets = chars[first:last]
        if not (offsets[0][0] <= start and offsets[-1][1] >= end):
            found.append((0, 0, 0))
            continue
        i, j = 0, len(offsets) - 1
        while i < len(offsets) and offsets[i][0] <= start:
            i += 1
        while j >= 0 and offsets[j][1] >= end:
            j -= 1
        found.append((first_pos + i - 1, first_pos + j + 1, int(AnswerType.SHORT)))
    return found


@few
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=40), st.data())
def test_targets_in_running_text_are_those_of_run_qa(
    tokenizers: list[Tokenizer], words: list[str], data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(words) - 1))
    behind = data.draw(st.integers(first + 1, len(words)))
    start, text = len(" ".join([*words[:first], ""])), " ".join(words[first:behind])
    record = {"question": "which old bridge?", "context": " ".join(words)}
    gold = [{"text": text, "answer_start": start}]
    example = decode_context({**record, "answers": gold})
    for tokenizer in tokenizers:
        made = training_features(example, tokenizer, PLAIN, Sampling(1.0, 1))
        asked = tokenizer.encode_text(record["question"]).ids
        first_pos = 1 + min(len(asked), PLAIN.max_query_length) + tokenizer.separators
        chars = tokenizer.encode_text(record["context"]).chars.tolist()
        room = PLAIN.max_seq_length - first_pos - 1
        assert labels(made) == run_qa(chars, start, start + len(text), first_pos, room)
        assert rows(made) == rows(features(example, tokenizer, PLAIN))


@pytest.mark.parametrize(
    ("gold", "kinds"),
    [
        ({"answers": []}, [AnswerType.UNKNOWN]),
        ({"answer": "ice"}, [AnswerType.SHORT]),
        ({"answer": ["never", "the old bridge"]}, [AnswerType.SHORT]),
        ({"answer": "never"}, []),
        ({"answer": "yes"}, []),
        ({}, []),
    ],
)
def test_gold_without_a_span_is_left_out_of_running_text(
    wordpiece: Tokenizer, gold: dict[str, Any], kinds: list[AnswerType]
) -> None:
    record = {"question": "which bridge?", "context": "The old bridge. No ice.", **gold}
    example = decode_context(record)
    made = training_features(example, wordpiece, PLAIN, Sampling(1.0, 1))
    assert [kind for _, _, kind in labels(made)] == kinds
    taught = training_features(example, wordpiece, PLAIN, Sampling(1.0, 1, unlabelled=True))
    assert [kind for _, _, kind in labels(taught)] == [*kinds, UNLABELLED][:1]
