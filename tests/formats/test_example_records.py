"""Tests that examples are the same after they were written and read."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nq.formats.example_records import decode_example, encode_example
from nq.records import Annotation, Candidate, Example, Span, YesNo
from tests.formats.reading import values_of

texts = st.text(st.characters(), max_size=9)  # lone surrogates too
spans = st.tuples(st.integers(0, 99), st.integers(0, 99)).map(lambda pair: Span(*pair))
gold = st.builds(
    Annotation,
    st.none() | spans,
    st.none() | st.integers(0, 9),
    st.lists(spans, max_size=3).map(tuple),
    st.sampled_from(YesNo),
)


@st.composite
def examples(draw: st.DrawFn) -> Example:
    tokens = draw(st.lists(texts, max_size=20))
    n = len(tokens)
    places = draw(st.lists(st.tuples(*[st.integers(-1, 1 << 40)] * 2), min_size=n, max_size=n))
    return Example(
        draw(texts | st.integers(-(1 << 63), (1 << 64) - 1)),
        draw(texts),
        tokens,
        draw(st.lists(st.booleans(), min_size=n, max_size=n)),
        draw(st.lists(st.builds(Candidate, spans, st.booleans()), max_size=5)),
        draw(st.none() | st.lists(gold, max_size=3).map(tuple)),
        draw(st.none() | st.just(np.array(places, np.int64).reshape(-1, 2))),
        draw(st.booleans()),
        draw(texts),
        answers=draw(st.none() | st.lists(texts, max_size=3).map(tuple)),
    )


@given(examples(), st.integers(0, 99), st.integers(1, 99), st.integers(0, 99))
def test_an_example_is_read_as_it_was_written(
    example: Example, file: int, line: int, n_windows: int
) -> None:
    key, again, count = decode_example(encode_example((file, line), example, n_windows))
    assert (key, count) == ((file, line), n_windows)
    assert values_of(again) == values_of(example)
