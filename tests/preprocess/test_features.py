"""From a page to integer rows and targets: against a slower truth, and what they promise."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

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


Places = list[tuple[int, int]]
"""Piece and document token of some places of a page, markers as -1."""


def sequences(example: Example, tokenizer: Tokenizer, config: WindowConfig) -> list[Places]:
    """The parts of a page that windows are cut from: all of it, or each block."""
    parts = list[Places]()
    for context in contexts(example, config):
        part = [(tokenizer.marker_id(marker), -1) for marker in context.markers]
        for word, doc in zip(context.words, context.doc, strict=True):
            part += [(piece, doc) for piece in tokenizer.encode([word])[0]]
        parts.append(part)
    if config.window_scope == "page":
        return [list(itertools.chain(*parts))]
    return parts if len(parts) == 1 else parts[1:]


def slowly(example: Example, tokenizer: Tokenizer, config: WindowConfig) -> dict[str, list[Any]]:
    """The rows of every window, built one place at a time."""
    asked = list(itertools.chain(*tokenizer.encode(example.question.split(" "))))
    keep = config.max_query_length - 1
    head = [tokenizer.cls_id, tokenizer.marker_id("[Q]"), *(asked[-keep:] if keep else [])]
    head += [tokenizer.sep_id] * tokenizer.separators
    room = config.max_seq_length - len(head) - 1
    rows: dict[str, list[Any]] = {name: [] for name in NAMES}
    for places in sequences(example, tokenizer, config):
        start = 0
        while True:
            body = places[start : start + room]
            blank = [0] * (room - len(body))
            padding = [tokenizer.pad_id] * len(blank)
            docs = [d for _, d in body]
            segments = [int(tokenizer.segments)] * (len(body) + 1)
            rows["input_ids"].append([*head, *(p for p, _ in body), tokenizer.sep_id, *padding])
            rows["input_mask"].append([1] * (len(head) + len(body) + 1) + blank)
            rows["segment_ids"].append([0] * len(head) + segments + blank)
            rows["token_map"].append([-1] * len(head) + docs + [-1] * (len(blank) + 1))
            if start + room >= len(places):
                break
            start += min(room, config.doc_stride)
    return rows


def texts_slowly(
    example: Example, tokenizer: Tokenizer, config: WindowConfig
) -> Iterator[list[tuple[int, int]]]:
    """Yields the piece and document token of each place of every window of texts."""

    def text(pieces: Places, prefix: str) -> Places:
        head = [tokenizer.cls_id, *itertools.chain(*tokenizer.encode(prefix.split()))]
        return [*((piece, -1) for piece in head), *pieces, (tokenizer.sep_id, -1)]

    asked = [(p, -1) for p in itertools.chain(*tokenizer.encode(example.question.split(" ")))]
    prefix_pieces = len(text([], config.question_prefix)) - 2
    question = text(asked[max(0, len(asked) - config.max_query_length + prefix_pieces) :], "who ")
    room = config.max_seq_length - config.max_query_length - 2
    longest = room - len(text([], config.block_prefix))
    window = list[tuple[int, int]]()
    for block in sequences(example, tokenizer, replace(config, window_scope=BLOCK_SCOPE)):
        words = block[2:]  # without the markers
        start = 0
        while words:
            part = text(words[start : start + longest], config.block_prefix)
            if len(window) + len(part) > room:
                yield question + window
                window = []
            window = window + part
            if start + longest >= len(words):
                break
            start += min(longest, config.doc_stride)
    yield question + (window or [(tokenizer.sep_id, -1)])


def positives(
    example: Example, tokenizer: Tokenizer, config: WindowConfig
) -> list[tuple[int, int, int]]:
    """Start, end and type of every window, by the words of the target."""
    wanted = target(example, contexts(example, config), config)
    assert wanted is not None
    by_word: list[list[int]] = []
    n_pieces = 0
    for context in contexts(example, config):
        by_word += [[n_pieces], [n_pieces + 1]]
        n_pieces += 2
        for pieces in tokenizer.encode(context.words):
            by_word.append(list(range(n_pieces, n_pieces + len(pieces))))
            n_pieces += len(pieces)
    places = list(itertools.chain(*by_word[wanted.first : wanted.last + 1]))
    head = len(query(example.question, tokenizer, config)) + 1 + tokenizer.separators
    room = config.max_seq_length - head - 1
    found, end = list[tuple[int, int, int]](), n_pieces
    for part in reversed(sequences(example, tokenizer, config)):
        start, rows = end - len(part), []
        while True:
            inside = all(start <= place < min(start + room, end) for place in places) and places
            if inside and wanted != NO_TARGET:
                shift = head - start
                rows.append((places[0] + shift, places[-1] + shift, int(wanted.kind)))
            else:
                rows.append((0, 0, 0))
            if start + room >= end:
                break
            start += min(room, config.doc_stride)
        found, end = rows + found, end - len(part)
    return found


def rows(made: Features) -> dict[str, list[Any]]:
    return {name: getattr(made, name).tolist() for name in NAMES}


def labels(made: Features) -> list[tuple[int, int, int]]:
    columns = (made.start_positions, made.end_positions, made.answer_types)
    assert all(column is not None for column in columns)
    return list(zip(*(column.tolist() for column in columns if column is not None), strict=True))


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
            assert made.input_ids[row, : len(places)].tolist() == [piece for piece, _ in places]
            assert made.token_map[row, : len(places)].tolist() == [doc for _, doc in places]
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
    every = training_features(example, wordpiece, SMALL, Sampling(1.0, seed))
    some = training_features(example, wordpiece, SMALL, Sampling(share, seed))
    again = training_features(example, wordpiece, SMALL, Sampling(share, seed))
    none = training_features(example, wordpiece, SMALL, Sampling(0.0, seed))
    assert some.window_numbers.tolist() == again.window_numbers.tolist()
    assert set(none.window_numbers) <= set(some.window_numbers) <= set(every.window_numbers)
    assert [kind for _, _, kind in labels(every) if kind] == [kind for _, _, kind in labels(none)]
    assert every.n_windows == some.n_windows == none.n_windows == len(every)
    for name in NAMES:
        assert np.array_equal(getattr(some, name), getattr(every, name)[some.window_numbers])


@few
@given(pages(), st.floats(0, 1), st.integers())
def test_pages_without_annotations_are_unlabelled_if_asked_for(
    wordpiece: Tokenizer, example: Example, share: float, seed: int
) -> None:
    bare = replace(example, annotations=None)
    assert not len(training_features(bare, wordpiece, SMALL, Sampling(share, seed)))
    some = training_features(bare, wordpiece, SMALL, Sampling(share, seed, unlabelled=True))
    negatives = replace(example, annotations=())
    expected = training_features(negatives, wordpiece, SMALL, Sampling(share, seed))
    assert (
        rows(some) == rows(expected)
        and some.window_numbers.tolist() == expected.window_numbers.tolist()
    )
    assert {kind for _, _, kind in labels(expected)} <= {AnswerType.UNKNOWN}
    assert labels(some) == [(0, 0, UNLABELLED)] * len(some)


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
