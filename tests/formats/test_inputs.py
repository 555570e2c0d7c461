"""Tests of input files of every format, and of every kind of bad record."""

from __future__ import annotations

import copy
import gzip
import hashlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nq.config import COMPAT_MODES, WindowConfig
from nq.formats import decoding, input_files, inputs
from nq.formats.fields import RecordError
from nq.preprocess.features import features, training_features
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import DeadLetter, Example, Span, YesNo
from tests import nq_records
from tests.formats.hugging_face_rows import row, write
from tests.nq_records import Record, changed, to_line, write_lines

NATIVE = Path(__file__).parents[3] / "shared" / "data" / "native"
DIALECTS = [nq_records.simplified, nq_records.v1]


def hugging_face(**options: Any) -> Record:
    return row(decoding.decode_example(to_line(nq_records.v1(**options))))


each_dialect = pytest.mark.parametrize("make", DIALECTS)
Make = Callable[..., Record]


def read(path: Path, **options: Any) -> list[Example | DeadLetter]:
    return [item for _, item in decoding.read_records(str(path), **options)]


def ids(path: Path, **options: Any) -> list[int | str]:
    return [item.example_id for item in read(path, **options) if isinstance(item, Example)]


def reason(record: object) -> str:
    with pytest.raises(RecordError) as caught:
        decoding.decode_example(record if isinstance(record, bytes) else to_line(record))
    return str(caught.value)


# --- valid records ------------------------------------------------------------------------


@each_dialect
def test_every_field_is_read(make: Make) -> None:
    example = decoding.decode_example(to_line(make(number=-5, words=3)))
    assert example.example_id == -5
    assert example.question == "who first walked on the moon"
    assert example.title == "Moon"
    assert " ".join(example.tokens) == (
        "<H1> Moon </H1> <P> the moon landing <Table> cell </Table> </P>"
    )
    assert [t for t, html in zip(example.tokens, example.is_html, strict=True) if html] == [
        "<H1>", "</H1>", "<P>", "<Table>", "</Table>", "</P>",
    ]  # fmt: skip
    assert [c.span for c in example.candidates] == [Span(3, 11), Span(7, 10)]
    assert [c.top_level for c in example.candidates] == [True, False]
    assert example.annotations is not None
    first, second = example.annotations
    assert (first.long, first.candidate, first.shorts) == (Span(3, 11), 0, (Span(5, 7),))
    assert (second.long, second.candidate, second.shorts) == (None, None, ())
    assert second.yes_no is YesNo.NONE


def test_only_v1_has_token_bytes() -> None:
    example = decoding.decode_example(to_line(nq_records.v1(words=1)))
    assert example.token_bytes is not None
    assert np.array_equal(example.token_bytes[:2], [[0, 4], [5, 9]])
    assert example.token_bytes.dtype == np.int64
    assert decoding.decode_example(to_line(nq_records.simplified())).token_bytes is None
    record = nq_records.v1()
    for token in record["document_tokens"]:
        del token["start_byte"], token["end_byte"]
    assert decoding.decode_example(to_line(record)).token_bytes is None


def test_simplified_text_is_split_at_single_spaces_only() -> None:
    record = nq_records.simplified() | {"document_text": "<P> a  b\u00a0c\u202fd\te <3 </P>"}
    record |= {"long_answer_candidates": [], "annotations": None}
    example = decoding.decode_example(to_line(record))
    assert example.tokens == ["<P>", "a", "", "b\u00a0c\u202fd\te", "<3", "</P>"]
    assert example.is_html == [True, False, False, False, False, True]


@pytest.mark.parametrize("annotations", [None, [], "absent"])
@each_dialect
def test_gold_is_optional(make: Make, annotations: object) -> None:
    record = make() | {"annotations": annotations}
    if annotations == "absent":
        del record["annotations"]
    assert decoding.decode_example(to_line(record)).annotations is None


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        *((i, i) for i in (0, -(2**63), 2**63 - 1)),
        ("-1220107454853145579", -1220107454853145579),
        *((i, i) for i in ("q1", "007", "1_000", " 12", "-0", "٣", "9" * 5000)),
    ],
)
def test_ids_are_read_without_loss(written: int | str, expected: int | str) -> None:
    record = nq_records.simplified() | {"example_id": written}
    assert decoding.decode_example(to_line(record)).example_id == expected


def test_fields_may_be_absent() -> None:
    record = nq_records.v1()
    del record["question_text"], record["document_title"]
    del record["long_answer_candidates"][1]["top_level"]
    del record["annotations"][0]["yes_no_answer"]
    del record["annotations"][0]["long_answer"]["candidate_index"]
    record["annotations"][1]["yes_no_answer"] = "yes"
    example = decoding.decode_example(to_line(record))
    assert example.question == "who first walked on the moon"
    assert example.title == ""
    assert example.candidates[1].top_level
    assert example.annotations is not None
    assert [a.yes_no for a in example.annotations] == [YesNo.NONE, YesNo.YES]
    assert example.annotations[0].candidate is None


def test_a_null_document_of_one_dialect_does_not_hide_the_other() -> None:
    record = nq_records.simplified() | {"document_tokens": None}
    assert decoding.decode_example(to_line(record)).tokens[1] == "Moon"


@pytest.mark.skipif(not NATIVE.exists(), reason="needs ../shared/data")
@pytest.mark.parametrize(
    "name",
    [
        "v1.0-dev-full-1.jsonl.gz",
        "simplified-test-1.jsonl",
        "simplified-train-1.jsonl",
        "simplified-train-sample.jsonl",
        "simplified-dev-sample.jsonl",
    ],
)
def test_published_files_are_read(name: str) -> None:
    examples = read(NATIVE / name)
    assert examples
    assert all(isinstance(item, Example) and item.candidates for item in examples)


# --- bad records --------------------------------------------------------------------------


C, A, OUTSIDE = "long_answer_candidates", "annotations", "is outside the 11 tokens"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"hello", "not JSON: unexpected character, expected a JSON value at character 1"),
        (b'{"example_id": 1', "not JSON: unexpected end of data"),
        (b'{"example_id": NaN}', "not JSON"),
        (b'{"example_id": 1e999}', "not JSON: number is infinity"),
        (b'{"example_id": 1} {}', "not JSON: unexpected content"),
        (b'{"question_text": "\\ud800"}', "not JSON: no low surrogate"),
        (b"[" * 5000, "too large: 5000 levels of nested JSON, the limit is 1024"),
        (b'{"question_text": "caf\xe9"}', "not UTF-8: byte 23 of the line is 0xe9"),
        (b'{"a": "\xed\xa0\x80"}', "not UTF-8"),
        (b"[]", "expected a JSON object, found an array"),
        (b"null", "expected a JSON object, found null"),
        (b'"text"', "expected a JSON object, found a string"),
        (b"true", "expected a JSON object, found a boolean"),
        (b"{}", "no document: expected a field 'document_tokens' (NQ v1.0) or 'document_text'"),
    ],
)
def test_lines_without_a_record(line: bytes, expected: str) -> None:
    assert expected in reason(line)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("example_id", ..., "missing field 'example_id'"),
        ("example_id", 1.5, "field 'example_id' must be an integer or a string, found a number"),
        ("example_id", 2**70, "found a number that is no 64-bit integer"),
        ("example_id", True, "field 'example_id' must be an integer or a string, found a boolean"),
        ("example_id", None, "found null"),
        ("example_id", "", "field 'example_id' is empty"),
        ("question_text", None, "field 'question_text' must be a string, found null"),
        (C, ..., f"missing field '{C}'"),
        (C, {}, f"field '{C}' must be an array, found an object"),
        (f"{C}.0", 3, f"{C}[0] must be an object, found an integer"),
        (f"{C}.1.start_token", ..., f"missing field '{C}[1].start_token'"),
        (f"{C}.0.start_token", "3", "must be an integer, found a string"),
        (f"{C}.0.start_token", True, "must be an integer, found a boolean"),
        (f"{C}.0.end_token", 12, f"{C}[0] [3, 12) {OUTSIDE}"),
        (f"{C}.0.end_token", 2**64 - 1, OUTSIDE),
        (f"{C}.0.start_token", -2, "[-2, 11) is outside the 11 tokens"),
        (f"{C}.0.end_token", 2, "ends at token 2, before its start 3"),
        (f"{C}.0", {"start_token": 11, "end_token": 11}, OUTSIDE),
        (f"{C}.0", {"start_token": -1, "end_token": -1}, f"{C}[0] has no span"),
        (f"{C}.0.top_level", 1, "top_level' must be a boolean, found an integer"),
        ("annotations", {}, "field 'annotations' must be an array, found an object"),
        ("annotations", 0, "field 'annotations' must be an array, found an integer"),
        (f"{A}.1", None, f"{A}[1] must be an object, found null"),
        (f"{A}.0.long_answer", ..., f"missing field '{A}[0].long_answer'"),
        (f"{A}.0.long_answer.end_token", 99, f"{A}[0].long_answer [3, 99) is outside"),
        (f"{A}.0.long_answer.candidate_index", 2, "is 2, but there are 2 candidates"),
        (f"{A}.0.long_answer.candidate_index", -2, "candidate_index is -2"),
        (f"{A}.0.long_answer.candidate_index", True, "must be an integer, found a boolean"),
        (f"{A}.0.short_answers", ..., f"missing field '{A}[0].short_answers'"),
        (f"{A}.0.short_answers.0.start_token", 8, f"{A}[0].short_answers[0] ends at token 7"),
        (f"{A}.0.yes_no_answer", "MAYBE", "must be YES, NO or NONE, found 'MAYBE'"),
        (f"{A}.0.yes_no_answer", 1, "must be a string, found an integer"),
    ],
)  # fmt: skip
@each_dialect
def test_bad_fields(make: Make, path: str, value: object, expected: str) -> None:
    assert expected in reason(changed(make(words=3), path, value))


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("document_tokens", None, "field 'document_tokens' must be an array, found null"),
        ("document_tokens", "a b", "field 'document_tokens' must be an array, found a string"),
        ("document_tokens.1", "Moon", "document_tokens[1] must be an object, found a string"),
        ("document_tokens.1.token", ..., "missing field 'document_tokens[1].token'"),
        ("document_tokens.1.token", 3, "field 'document_tokens[1].token' must be a string"),
        ("document_tokens.1.html_token", ..., "missing field 'document_tokens[1].html_token'"),
        ("document_tokens.1.html_token", "false", "must be a boolean, found a string"),
        ("document_tokens.1.start_byte", ..., "missing field 'document_tokens[1].start_byte'"),
        ("document_tokens.1.end_byte", "9", "must be an integer, found a string"),
        ("document_tokens.1.end_byte", 2**63, "beyond 64 bits"),
    ],
)
def test_bad_tokens_of_v1(path: str, value: object, expected: str) -> None:
    assert expected in reason(changed(nq_records.v1(words=3), path, value))


def test_bad_question_tokens() -> None:
    record = changed(nq_records.v1(words=3), "question_tokens.1", 5)
    del record["question_text"]
    assert "question_tokens[1] must be a string, found an integer" in reason(record)


@pytest.mark.parametrize("value", ["x" * 10**6, ["x"] * 10**5])
def test_reasons_of_long_values_are_short(value: object) -> None:
    record = changed(nq_records.v1(words=3), "annotations.0.yes_no_answer", value)
    assert len(reason(record)) < 200


# --- any record ---------------------------------------------------------------------------

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**65), 2**65)
    | st.integers(-3, 80)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["", " ", "YES", "\ud800", "<P>", "\u2028"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
nudges = st.integers(-9, 9).map(complex)
fractions = st.floats(0, 1, exclude_max=True)
CONFIG = WindowConfig(max_seq_length=64, max_query_length=16, doc_stride=16)


def nodes(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields every (container, key) of a JSON value; of long lists only the ends."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys if len(keys) < 10 else [*keys[:3], *keys[-3:]]:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from nodes(value[key])


def change(container: Any, key: Any, value: Any) -> None:
    """Deletes (...), nudges (a complex number) or replaces one field."""
    if value is ...:
        del container[key]
    elif not isinstance(value, complex):
        container[key] = value
    elif type(container[key]) is int:
        container[key] += int(value.real)
    elif type(container[key]) in (str, list):
        container[key] = container[key][int(value.real) :] * 2
    elif type(container[key]) is bool:
        container[key] = not container[key]


@pytest.fixture(scope="module")
def vocab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nq_records.write_vocab(tmp_path_factory.mktemp("vocab"))


@settings(deadline=None, max_examples=400)
@given(
    make=st.sampled_from([*DIALECTS, hugging_face]),
    changes=st.lists(
        st.tuples(fractions, st.just(...) | nudges | anything), min_size=1, max_size=3
    ),
    compat=st.sampled_from(COMPAT_MODES),
)
def test_a_changed_record_is_an_example_or_a_record_error(
    vocab: Path, make: Make, changes: list[tuple[float, Any]], compat: str
) -> None:
    record = copy.deepcopy(make(words=40))
    for fraction, value in changes:
        fields = list(nodes(record))
        if fields:
            container, key = fields[int(fraction * len(fields))]
            change(container, key, value)
    try:
        example = decoding.decode_example(to_line(record))
    except RecordError as error:
        assert str(error)
        return
    check_ranges(example)
    tokenizer = load_tokenizer(vocab, compat)
    config = WindowConfig(**CONFIG.to_dict() | {"compat": compat})
    assert len(features(example, tokenizer, config)) >= 1
    training_features(example, tokenizer, config, negatives=1.0, seed=1)


def check_ranges(example: Example) -> None:
    n = len(example.tokens)
    spans = [c.span for c in example.candidates]
    for annotation in example.annotations or ():
        spans += [s for s in (annotation.long, *annotation.shorts) if s is not None]
        assert annotation.candidate is None or 0 <= annotation.candidate < len(example.candidates)
    assert all(0 <= span.start <= span.end <= n and span.start < n for span in spans)
    assert all(type(token) is str for token in example.tokens)
    assert all(type(html) is bool for html in example.is_html)
    assert len(example.is_html) == n
    assert example.token_bytes is None or example.token_bytes.shape == (n, 2)
    assert type(example.question) is str
    assert type(example.title) is str
    assert type(example.example_id) in (int, str)


@settings(deadline=None, max_examples=300)
@given(line=st.binary() | st.text().map(str.encode) | anything.map(to_line))
def test_any_line_is_an_example_or_a_record_error(line: bytes) -> None:
    with pytest.raises(RecordError):
        decoding.decode_example(line)


# --- files --------------------------------------------------------------------------------


def test_gzip_is_detected_by_its_first_bytes(tmp_path: Path) -> None:
    plain = write_lines(tmp_path / "a.jsonl", [nq_records.simplified(1), nq_records.v1(2)])
    zipped = write_lines(tmp_path / "b.jsonl.gz", [nq_records.simplified(3)])
    renamed = zipped.rename(tmp_path / "c.jsonl")
    two_members = tmp_path / "d.bin"
    two_members.write_bytes(renamed.read_bytes() + gzip.compress(to_line(nq_records.v1(4))))
    assert [*ids(plain), *ids(renamed), *ids(two_members)] == [1, 2, 3, 3, 4]


def test_bom_line_ends_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    good = to_line(nq_records.simplified())
    path.write_bytes(b"\xef\xbb\xbf" + good + b"\r\n\r\n  \t\n" + good + b"\n\n" + good)
    lines = [(source.line, item) for source, item in decoding.read_records(str(path), 3)]
    assert [line for line, _ in lines] == [1, 4, 6]
    assert all(isinstance(item, Example) for _, item in lines)


def test_empty_files(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"")
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b""))
    (tmp_path / "c.jsonl").write_bytes(b"\n\n")
    assert [read(p) for p in sorted(tmp_path.iterdir())] == [[], [], []]


@pytest.mark.parametrize("damage", ["cut", "flipped", "trailing garbage", "magic only"])
def test_a_damaged_gzip_file_is_read_up_to_the_damage(tmp_path: Path, damage: str) -> None:
    lines = [
        nq_records.simplified(i) | {"noise": random.Random(i).randbytes(3000).hex()}
        for i in range(20)
    ]
    whole = gzip.compress(b"".join(to_line(line) + b"\n" for line in lines))
    middle = len(whole) // 2
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(
        {
            "cut": whole[:middle],
            "flipped": whole[:middle] + b"\xff" * 50 + whole[middle + 50 :],
            "trailing garbage": whole + b"garbage",
            "magic only": whole[:2],
        }[damage]
    )
    *good, last = read(path)
    assert isinstance(last, DeadLetter)
    assert "the compressed file is cut off or damaged" in last.reason
    assert last.source.path == str(path)
    assert last.source.line >= len(good) + 1
    shared = [item for i in range(3) for item in read(path, share=(i, 3))]
    assert len(shared) == len(good) + 1
    assert sum(isinstance(item, DeadLetter) for item in shared if item is not None) >= 1


def test_shares_and_limit_cover_every_line_once(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [nq_records.simplified(i) for i in range(11)])
    assert ids(path, share=(1, 3)) == [1, 4, 7, 10]
    assert sorted(i for n in range(3) for i in ids(path, share=(n, 3))) == list(range(11))
    assert ids(path, limit=4) == [0, 1, 2, 3]
    assert ids(path, share=(1, 2), limit=4) == [1, 3]
    assert ids(path, limit=0) == []


def test_a_dead_letter_has_an_excerpt(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [b'["\xff' + "ü".encode() * 4000])
    (letter,) = read(path)
    assert isinstance(letter, DeadLetter)
    assert letter.record.startswith('["\\xffüüü')
    assert len(letter.record) == decoding.EXCERPT_CHARS


def test_find_files(tmp_path: Path) -> None:
    names = ("b.jsonl", "a.jsonl.gz", "c.json", "notes.md", "[x].jsonl", ".hidden.jsonl")
    for name in names:
        (tmp_path / name).touch()
    (tmp_path / "sub.jsonl").mkdir()

    def find(*patterns: str) -> list[str]:
        return [Path(p).name for p in input_files.find_files([str(tmp_path / p) for p in patterns])]

    assert find("") == ["[x].jsonl", "a.jsonl.gz", "b.jsonl", "c.json"]
    assert find("b.jsonl", "*.jsonl*") == ["b.jsonl", "[x].jsonl", "a.jsonl.gz"]
    assert find("[x].jsonl", "notes.md", "./b.jsonl", "b.jsonl") == [
        "[x].jsonl",
        "notes.md",
        "b.jsonl",
    ]
    with pytest.raises(
        FileNotFoundError, match=r"no file matches .*nothing.*; give a file, a glob"
    ):
        find("nothing*")
    with pytest.raises(FileNotFoundError, match=r"sub.jsonl has no file ending in .jsonl, "):
        find("sub.jsonl")
    with pytest.raises(ValueError, match=r"/dev/null is no file, folder or pipe; .* or give - for"):
        input_files.find_files(["/dev/null"])
    with pytest.raises(ValueError, match="found 5 instead of a path; give a str or"):
        input_files.find_files([tmp_path, 5])  # type: ignore[list-item]
    assert input_files.find_files(tmp_path / "b.jsonl") == [str(tmp_path / "b.jsonl")]


def test_the_digest_of_a_changed_file_is_another(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"1")
    digest = input_files.sha256(path)
    assert digest == input_files.sha256(str(path)) == hashlib.sha256(b"1").hexdigest()
    path.write_bytes(b"22")
    assert input_files.sha256(path) == hashlib.sha256(b"22").hexdigest()


# --- read_examples ------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of a plain, a gzip and a parquet file; the first two have a bad record."""
    bad = {"example_id": 5}
    lines = [nq_records.simplified(1), bad, nq_records.v1(2)]
    write_lines(tmp_path / "a.jsonl", lines)
    write_lines(tmp_path / "b.jsonl.gz", [nq_records.v1(3), b"nonsense", nq_records.v1(1)])
    write(tmp_path / "c.parquet", [hugging_face(number=4)])
    return tmp_path


def test_read_examples_of_files_globs_and_folders(folder: Path) -> None:
    def read_ids(*patterns: str | Path) -> list[int | str]:
        return [e.example_id for e in inputs.read_examples(patterns, skip_bad=True)]

    assert read_ids(folder) == [1, 2, 3, 1, 4]
    assert read_ids(f"{folder}/*.parquet", folder / "a.jsonl") == [4, 1, 2]
    (example,) = inputs.read_examples(folder / "c.parquet")
    assert example.question == "who first walked on the moon"


def test_a_bad_record_is_an_error_with_file_line_and_reason(folder: Path) -> None:
    examples = inputs.read_examples(folder)
    assert next(examples).example_id == 1
    with pytest.raises(RecordError, match=r"a\.jsonl, line 2: no document: .*; correct the record"):
        next(examples)


def test_skipped_records_are_logged_and_counted(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    list(inputs.read_examples(folder / "c.parquet", skip_bad=True))
    assert not caplog.messages
    list(inputs.read_examples(folder, skip_bad=True))
    first, second, total = caplog.messages
    assert first.startswith(f"skipped a record: {folder}/a.jsonl, line 2: no document")
    assert second.startswith(f"skipped a record: {folder}/b.jsonl.gz, line 2: not JSON")
    assert total == "skipped 2 bad records in all"


def test_unusable_files_are_errors_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no file matches"):
        inputs.read_examples(tmp_path / "nothing.jsonl")
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and nothing more")
    with pytest.raises(ValueError, match="cut off or damaged"):
        inputs.read_examples(tmp_path)
    with pytest.raises(ValueError, match="instead of a path"):
        inputs.read_examples(5)  # type: ignore[arg-type]
