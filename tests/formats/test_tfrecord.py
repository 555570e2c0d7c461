"""Tests TFRecord files and windows against TensorFlow's, and that examples are read as written."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nq.errors import Error
from nq.formats.tfrecord import (
    TARGETS,
    decode_example,
    decode_records,
    encode_example,
    encode_records,
    frame,
    inference_shapes,
    raw_records,
    read_record_at,
    record_offsets,
    training_shapes,
)
from nq.records import Annotation, Candidate, Example, Features, IntArray, Source, Span, YesNo
from tests.formats.reading import values_of

INT64 = np.iinfo(np.int64)
SOURCE = Source(3, "dev.jsonl", 41)
IDS = ["unique_ids", "unique_id"]
matrices = hnp.arrays(
    np.int64,
    st.tuples(st.integers(1, 4), st.integers(1, 9)),
    elements=st.integers(INT64.min, INT64.max) | st.integers(-2, 300),
)


def parse(record: bytes) -> dict[str, list[int]]:
    """Returns the features of a record, parsed by TensorFlow's own protobuf class."""
    parsed = tf.train.Example.FromString(record).features.feature
    assert all(feature.WhichOneof("kind") == "int64_list" for feature in parsed.values())
    return {name: list(feature.int64_list.value) for name, feature in parsed.items()}


def some_features(values: IntArray, example_id: int | str = 5, training: bool = False) -> Features:
    """Returns features whose columns are all made of ``values`` ``[W, L]``."""
    first = values[:, 0]
    return Features(
        example_id,
        input_ids=values,
        input_mask=np.roll(values, 1),
        segment_ids=np.roll(values, 2),
        token_map=np.roll(values, 3),
        window_numbers=np.arange(len(values)) * 2,
        n_windows=99,
        start_positions=first if training else None,
        end_positions=first + 1 if training else None,
        answer_types=first + 2 if training else None,
    )


@given(values=matrices, training=st.booleans(), id_name=st.sampled_from(IDS))
def test_tensorflow_reads_the_records_and_writes_the_same(
    values: IntArray, training: bool, id_name: str
) -> None:
    features = some_features(values, training=training)
    records = list(encode_records(features, SOURCE, id_name))
    length = values.shape[1]
    shapes = training_shapes(length) if training else inference_shapes(length)
    columns = decode_records(records, shapes)
    assert len(records) == len(values)
    for i, record in enumerate(records):
        expected: dict[str, Any] = {
            id_name: [5 + 2 * i],
            "input_ids": features.input_ids[i].tolist(),
            "input_mask": features.input_mask[i].tolist(),
            "segment_ids": features.segment_ids[i].tolist(),
        }
        if training:
            expected |= {name: [getattr(features, name)[i]] for name in TARGETS}
        else:
            expected["token_map"] = features.token_map[i].tolist()
            expected |= {"example_keys": [3, 41], "window_ids": [2 * i, 99]}
        assert parse(record) == expected
        example = tf.train.Example()
        for name in sorted(expected):
            example.features.feature[name].int64_list.value.extend(expected[name])
        assert example.SerializeToString(deterministic=True) == record
        for name, column in columns.items():
            as_int32 = np.array(expected[name]).astype(np.int32)
            np.testing.assert_array_equal(column[i].reshape(-1), as_int32)
    assert {name: list(column.shape[1:]) for name, column in columns.items()} == shapes


def unique_ids(example_id: int | str, n: int = 3) -> list[int]:
    features = some_features(np.zeros((n, 2), np.int64), example_id)
    return [parse(record)["unique_ids"][0] for record in encode_records(features, SOURCE)]


def test_unique_ids_are_example_id_plus_window_modulo_2_to_the_64() -> None:
    assert unique_ids(-7) == [-7, -5, -3]
    assert unique_ids(INT64.max) == [INT64.max, INT64.min + 1, INT64.min + 3]
    assert unique_ids(2**64 - 1) == [-1, 1, 3]
    of_text = unique_ids("question 1")  # a hash
    assert of_text[0] == 7150447286326655 != unique_ids("question 2")[0]
    assert np.diff(of_text).tolist() == [2, 2]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=st.lists(st.binary(max_size=300), max_size=8))
def test_files_are_tensorflows(tmp_path: Path, records: list[bytes]) -> None:
    theirs = tmp_path / "theirs"
    with tf.io.TFRecordWriter(str(theirs)) as writer:
        for record in records:
            writer.write(record)
    assert b"".join(map(frame, records)) == theirs.read_bytes()
    assert list(raw_records(theirs)) == records
    offsets = record_offsets(theirs)
    order = random.Random(1).sample(range(len(records)), len(records))
    with theirs.open("rb") as file:
        assert [read_record_at(file, *offsets[i]) for i in order] == [records[i] for i in order]


def test_every_byte_that_is_changed_or_lacks_is_noticed(tmp_path: Path) -> None:
    path, whole = tmp_path / "records", frame(b"window" * 10)
    for byte in range(len(whole)):
        data = bytearray(whole)
        data[byte] ^= 1
        path.write_bytes(data)
        with pytest.raises(Error, match=str(path)):
            list(raw_records(path))
        if byte > 11:  # the data or its checksum, not the header
            with path.open("rb") as file, pytest.raises(Error, match=str(path)):
                read_record_at(file, 12, 60)
        path.write_bytes(whole[:byte])
        for read in (raw_records, record_offsets) if byte else ():
            with pytest.raises(Error, match=str(path)):
                list(read(path))


texts = st.text(st.characters(), max_size=9)  # lone surrogates too
spans = st.tuples(st.integers(0, 99), st.integers(0, 99)).map(lambda pair: Span(*pair))
gold = st.builds(
    Annotation,
    st.none() | spans,
    st.none() | st.integers(0, 9),
    st.lists(spans, max_size=3).map(tuple),
    st.sampled_from(YesNo),
)


examples = st.builds(
    Example,
    example_id=texts | st.integers(-(1 << 63), (1 << 64) - 1),
    question=texts,
    tokens=st.lists(texts, max_size=20),
    is_html=st.lists(st.booleans()),
    candidates=st.lists(st.builds(Candidate, spans, st.booleans()), max_size=5),
    annotations=st.none() | st.lists(gold, max_size=3).map(tuple),
    token_bytes=st.none() | hnp.arrays(np.int64, (3, 2), elements=st.integers(-1, 1 << 40)),
    title=texts,
    answers=st.none() | st.lists(texts, max_size=3).map(tuple),
)


@given(examples, st.integers(0, 99), st.integers(1, 99), st.integers(0, 99))
def test_an_example_is_read_as_it_was_written(
    example: Example, file: int, line: int, n_windows: int
) -> None:
    key, again, count = decode_example(encode_example((file, line), example, n_windows))
    assert (key, count) == ((file, line), n_windows)
    assert values_of(again) == values_of(example)
