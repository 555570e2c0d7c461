"""Tests files of SQuAD and MRQA and CSV: how they are recognized, divided and numbered."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from nq.errors import Error
from nq.formats import csv_rows, decoding, inputs, lines, mrqa, squad
from nq.formats.containers import container_of
from nq.formats.limits import RecordLimits
from nq.records import DeadLetter, Example
from tests.formats import own_data
from tests.nq_records import simplified, write_lines


def read(path: Path, **options: Any) -> list[tuple[int, Example | DeadLetter]]:
    inputs.check_files([str(path)])
    return [(source.line, item) for source, item in decoding.read_records(str(path), **options)]


def ids(path: Path, **options: Any) -> list[tuple[int, int | str]]:
    return [(n, i.example_id) for n, i in read(path, **options) if isinstance(i, Example)]


def reasons(path: Path, **options: Any) -> list[tuple[int, str]]:
    return [(n, i.reason) for n, i in read(path, **options) if isinstance(i, DeadLetter)]


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    data = text.encode(encoding)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


# --- SQuAD and MRQA -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dev.json", "dev.json.gz", "any name"])
@pytest.mark.parametrize("style", [{}, {"indent": 2}, {"separators": (",", ":")}])
def test_a_squad_file_is_known_by_its_fields(
    name: str, style: dict[str, Any], tmp_path: Path
) -> None:
    path = write(tmp_path / name, "\ufeff" + json.dumps(own_data.squad(), **style))
    assert container_of(str(path)) is squad
    assert ids(path) == [(1, "q1"), (2, "q2"), (3, "q3")]
    first, _, last = (item for _, item in read(path))
    assert isinstance(first, Example) and isinstance(last, Example)
    assert (first.title, first.answers, last.answers) == ("Skerry Point", ("1986",), ())
    assert last.annotations is not None and last.annotations[0].long is None
    assert decoding.count_records(str(path)) == 3
    assert decoding.count_records(str(path), 2) == 2


def test_an_mrqa_file_is_known_by_its_fields(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "dev.jsonl.gz", own_data.mrqa())
    assert container_of(str(path)) is mrqa
    assert ids(path) == [(1, "m1"), (2, "m2"), (3, "m3")]
    (_, first), (_, second), _ = read(path)
    assert isinstance(first, Example) and isinstance(second, Example)
    assert (first.answers, second.answers) == (("Tom Hale", "Hale"), None)
    places = [first.original.place(a.shorts[0]) for a in first.annotations or () if first.original]
    start = own_data.KEEPER
    assert places == [(start, start + 8), (start + 4, start + 8)]
    without_header = write_lines(tmp_path / "x", own_data.mrqa()[1:])
    assert ids(without_header) == ids(path)


@pytest.mark.parametrize("make", ["squad", "mrqa", "csv"])
def test_shares_and_limits_are_those_of_the_questions(make: str, tmp_path: Path) -> None:
    path = tmp_path / "data"
    if make == "squad":
        own_data.write_squad(path)
    elif make == "mrqa":
        write_lines(path, own_data.mrqa())
    else:
        write(path, "id,question,context\n" + "".join(f'{i},who,"a\nb"\n' for i in range(3)))
    everything = ids(path)
    assert len(everything) == 3
    assert sorted(x for i in range(2) for x in ids(path, share=(i, 2))) == everything
    assert ids(path, limit=2) == everything[:2]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda d: d["data"][0].pop("paragraphs"), "missing field 'data[0].paragraphs'"),
        (lambda d: d["data"].append(7), "data[1] must be an object, found an integer"),
        (
            lambda d: d["data"][0]["paragraphs"][0].pop("qas"),
            "missing field 'data[0].paragraphs[0]",
        ),
        (lambda d: d["data"][0]["paragraphs"][0].update(context=None), "context' must be a string"),
        (lambda d: d["data"][0]["paragraphs"][0]["qas"].append("x"), "qas[3] must be an object"),
        (
            lambda d: d["data"][0]["paragraphs"][0]["qas"][0].pop("question"),
            "missing field 'question'",
        ),
    ],
)
def test_a_damaged_part_of_a_squad_file_is_a_bad_record(
    change: Any, reason: str, tmp_path: Path
) -> None:
    document = own_data.squad()
    change(document)
    ((_, found),) = reasons(write(tmp_path / "a.json", json.dumps(document)))
    assert reason in found


def test_a_squad_file_that_is_cut_off_is_one_bad_record(tmp_path: Path) -> None:
    text = json.dumps(own_data.squad())
    ((number, reason),) = reasons(write(tmp_path / "a.json", text[:-20]))
    assert number == 1 and reason.startswith("not JSON: ")
    data = gzip.compress(text.encode())
    (tmp_path / "b.json.gz").write_bytes(data[:-12])
    ((_, reason),) = reasons(tmp_path / "b.json.gz")
    assert reason.startswith("the compressed file is cut off or damaged")


def test_a_large_squad_file_is_refused(tmp_path: Path) -> None:
    path = own_data.write_squad(tmp_path / "a.json")
    limits = RecordLimits(document_bytes=300, document_values=5)
    ((_, reason),) = reasons(path, limits=limits)
    assert reason == "too large: 301 bytes of a SQuAD file, the limit is 300"
    limits = RecordLimits(document_values=5)
    ((_, reason),) = reasons(path, limits=limits)
    assert reason.endswith("JSON values in a SQuAD file, the limit is 5")


def test_bad_lines_of_mrqa(tmp_path: Path) -> None:
    good = own_data.mrqa()
    bad = {"text": "Tom", "char_spans": [[1]]}
    spans = [{"question": "who", "detected_answers": [bad]}]
    wrong = {"text": "Tom", "char_spans": [[0, 2]]}
    lacks = [{"question": "who", "answers": ["Tom"], "detected_answers": [wrong]}]
    context = own_data.CONTEXT
    records = [{"context": "x"}, *({"context": context, "qas": qas} for qas in (spans, lacks))]
    path = write_lines(tmp_path / "a", [*good[:2], b"{bad", *records])
    assert len(ids(path)) == 2
    found = [reason for _, reason in reasons(path)]
    assert found[0].startswith("line 3: not JSON")
    assert found[1] == "missing field 'line 4.qas'"
    assert found[2] == "detected_answers[0].char_spans has 1 numbers, expected first and last"
    assert found[3].startswith(
        "the context lacks an answer: answers[0] is 'Tom', but at character 0"
    )


def test_nq_records_are_still_lines(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [simplified(1), simplified(2)])
    assert container_of(str(path)) is lines
    assert ids(path) == [(1, 1), (2, 2)]


# --- CSV ----------------------------------------------------------------------------------

ROW = "7{0}When was it built?{0}It was built in 1889.{0}1889"


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("start", ["", "\ufeff", "sep={}\n", "\ufeffsep={}\r\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_csv_of_any_kind(separator: str, start: str, end: str, tmp_path: Path) -> None:
    header = separator.join(["ID", " Question", '"Context"', "answer "])
    text = start.format(separator) + header + end + ROW.format(separator) + end + end
    path = write(tmp_path / "no suffix", text)
    assert container_of(str(path)) is csv_rows
    ((_, example),) = read(path)
    assert isinstance(example, Example)
    assert (example.example_id, example.question) == (7, "When was it built?")
    assert example.answers == ("1889",)


def test_the_text_of_a_cell_is_kept(tmp_path: Path) -> None:
    context = 'He said: "so",\r\nand\tleft; caf\u00e9 \U0001f600.\n\nThe end'
    quoted = context.replace('"', '""')
    path = write(tmp_path / "a.csv.gz", f'question,context\nwho,"{quoted}"\nwhat,"x"\n')
    (first, example), (second, _) = read(path)
    assert isinstance(example, Example) and example.original is not None
    assert example.original.plain == context
    assert (first, second) == (2, 6)  # lines of the file, for an editor
    assert example.example_id == "a.csv.gz:2"
    assert inputs.is_official(str(path)) is False


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("who", "found 1 cells, expected 2 as in the first row"),
        ("who,a,b", "found 3 cells, expected 2 as in the first row; put a cell with a separator"),
        ('who,"a"b', "not CSV: ',' expected after '\"'"),
        (",a", "field 'question' is empty"),
        ("who,", "field 'context' has no words"),
        ("who,caf\udce9", "not UTF-8; convert the file"),
    ],
)
def test_a_bad_row_does_not_cost_the_others(row: str, reason: str, tmp_path: Path) -> None:
    text = f"question,context\n{row}\nwho,good\n"
    (tmp_path / "a.csv").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert len(ids(tmp_path / "a.csv")) == 1
    ((number, found),) = reasons(tmp_path / "a.csv")
    assert number == 2 and reason in found and "\n" not in found


def test_a_quote_that_is_not_closed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'question,context\nwho,good\nwho,"' + "x\n" * 1000)
    assert len(ids(path)) == 1
    ((number, reason),) = reasons(path)
    assert (number, reason) == (3, "not CSV: unexpected end of data; check the quotes")
    ((number, reason),) = reasons(path, limits=RecordLimits(bytes=500))
    assert number == 3 and reason.endswith("the rest is not read (is a quote not closed?)")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("q,context", "found the columns q, context; expected 'question' and 'context', or"),
        ("", "found the columns (none); expected"),
        ("question,context,context", "found two columns 'context'"),
        (",".join(f"c{i}" for i in range(99)), "c7, …; expected 'question'"),
    ],
)
def test_missing_columns_are_an_error_of_the_file(
    header: str, message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "a.csv", f"{header}\n1,2\n")
    with pytest.raises(ValueError, match=r"a\.csv") as caught:
        inputs.check_files([str(path)])
    assert message in str(caught.value)


def test_other_files_named_csv_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "question,context\nwho,x\n", "utf-16")
    with pytest.raises(ValueError, match=r"is UTF-16 text: convert it to UTF-8"):
        inputs.check_files([str(path)])
    path.write_bytes(b"PK\x03\x04" + bytes(26) + b"[Content_Types].xml" + bytes(99))
    with pytest.raises(ValueError, match=r"Microsoft Office: save it as text, a workbook as CSV"):
        inputs.check_files([str(path)])


# --- files without one good record --------------------------------------------------------


def test_files_without_a_good_record_are_an_error(tmp_path: Path) -> None:
    bad = write_lines(tmp_path / "bad.jsonl", [{"question": "who"}, {"query": "x"}])
    good = own_data.write_squad(tmp_path / "good.json")
    empty = write(tmp_path / "empty.jsonl", "")
    with pytest.raises(Error, match=r"all 2 records are bad; the first: .*, line 1: the question"):
        inputs.check_records([str(bad)])
    with pytest.raises(Error, match=r"the only record is bad"):
        inputs.check_records([str(bad)], limit=1)
    with pytest.raises(Error, match=r"there are no records in .*empty.jsonl"):
        inputs.check_records([str(empty)])
    inputs.check_records([str(bad), str(empty), str(good)])
