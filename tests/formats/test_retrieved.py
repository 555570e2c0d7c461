"""Tests passages of retrievers: four shapes, lists and objects read element by element."""

import gzip
import io
import itertools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nq.formats import elements, inputs, lines
from nq.formats.documents import page_from_html
from nq.formats.fields import LIMITS, RecordError
from nq.formats.retrieved import decode
from nq.questions import read_examples
from nq.records import DeadLetter, Example, Passage
from tests.conftest import Commands
from tests.formats import own_data
from tests.formats.reading import ids, items, reasons, records, values_of
from tests.support.nq_records import simplified, write_lines
from tests.support.peak_memory import limited_memory

Passages = Sequence[tuple[str, str, str]]
KEEPERS: Passages = (
    ("p1", "Skerry Point", "The lighthouse was built by Ada Brenn in 1874."),
    ("p2", "", "It rains."),
    ("p3", "Tom Hale", "The last keeper lived in the tower.\n\nIt was automated in 1986."),
)
QUESTION = "When was it automated?"


def below_title(title: str, text: str) -> str:
    return f"{title}\n{text}" if title else text


def dpr(key: str, passages: Passages, answers: Any) -> dict[str, Any]:
    ctxs = [
        {"id": i, "title": title, "text": text, "score": "80.5", "has_answer": True}
        for i, title, text in passages
    ]
    return {"id": key, "question": QUESTION, "answers": answers, "ctxs": ctxs}


def pyserini(key: str, passages: Passages, answers: Any) -> dict[str, Any]:
    listed = [
        {"docid": i, "score": 80.5, "text": below_title(title, text), "has_answer": True}
        for i, title, text in passages
    ]
    return {"id": key, "question": QUESTION, "answers": answers, "contexts": listed}


def flash_rag(key: str, passages: Passages, answers: Any) -> dict[str, Any]:
    result = [
        {"id": i, "contents": below_title(f'"{title}"' if title else "", text), "score": 0.5}
        for i, title, text in passages
    ]
    output = {"retrieval_result": result, "pred": "1887"}
    return {"id": key, "question": QUESTION, "golden_answers": answers, "output": output}


def training(key: str, passages: Passages, answers: Any) -> dict[str, Any]:
    positive = [{"title": t, "text": x, "passage_id": i} for i, t, x in passages]
    others: dict[str, Any] = {"negative_ctxs": [], "hard_negative_ctxs": []}
    return {"id": key, "question": QUESTION, "answers": answers, "positive_ctxs": positive} | others


SHAPES = [dpr, pyserini, flash_rag, training]
Shape = Callable[[str, Passages, Any], dict[str, Any]]


def dump_list(path: Path, several: list[Any], indent: int | None = None) -> Path:
    path.write_text(json.dumps(several, indent=indent), encoding="utf-8")
    return path


def write_shapes(folder: Path, several: list[tuple[str, Passages, Any]]) -> Iterator[Path]:
    """Writes the records in each shape, as a list, as lines and as an object by id."""
    for shape in SHAPES:
        rows = [shape(*one) for one in several]
        for indent in (None, 1):
            yield dump_list(folder / f"{shape.__name__}-{indent}.json", rows, indent)
        yield write_lines(folder / f"{shape.__name__}.jsonl.gz", rows)
        if shape in (dpr, pyserini):
            by_id = {row["id"]: {k: v for k, v in row.items() if k != "id"} for row in rows}
            text = json.dumps(by_id, indent=4)
            (folder / f"{shape.__name__}-by-id.json").write_text(text, encoding="utf-8")
            yield folder / f"{shape.__name__}-by-id.json"


def without_gold(example: Example) -> dict[str, Any]:
    """Returns the values without annotations and scores, which training files have not."""
    passages = [replace(passage, score=None) for passage in example.passages or ()]
    return values_of(example) | {"annotations": None, "passages": passages}


def test_all_shapes_are_the_same_example(tmp_path: Path) -> None:
    twice = [*KEEPERS[:1], *KEEPERS[:1]]
    several: list[Any] = [("q1", KEEPERS, ["1986"]), ("q2", twice, None), ("q3", (), ["1986"])]
    expected = [decode(dpr(*one)) for one in several]
    for path in write_shapes(tmp_path, several):
        examples = list(read_examples(path))
        assert list(map(without_gold, examples)) == list(map(without_gold, expected)), path
        assert [bool(e.annotations) for e in examples] == [True, False, False]
    first, second, third = expected
    assert third.passages == ()
    assert first.passages == tuple(Passage(i, t, n, 80.5) for n, (i, t, _) in enumerate(KEEPERS, 1))
    assert [example.title for example in expected] == [""] * 3
    (gold,) = first.annotations or ()
    assert first.passage(gold.shorts[0]) == Passage("p3", "Tom Hale", 3, 80.5)
    assert [first.text(c.span) for c in first.candidates] == [
        "Skerry Point\n" + KEEPERS[0][2], "It rains.", "Tom Hale\n" + KEEPERS[2][2]
    ]  # fmt: skip
    assert [passage.rank for passage in second.passages or ()] == [1, 2]


def test_passages_are_the_blocks_of_the_same_page_as_html(tmp_path: Path) -> None:
    example = decode(dpr("q", KEEPERS, ["1986"]))
    html = "".join(f"<h2>{title}</h2><p>{text}</p>" for _, title, text in KEEPERS)
    page = page_from_html(html).example
    assert list(page.tokens) == list(example.tokens)
    assert list(page.candidates) == list(example.candidates)
    assert page.original and example.original
    assert list(page.original.spelling) == list(example.original.spelling)


def test_gold_of_a_training_file_is_in_the_first_positive_passage_with_it() -> None:
    record = training("q", KEEPERS[:2], ["Tom Hale", "1874"])
    record["hard_negative_ctxs"] = [{"title": KEEPERS[2][1], "text": KEEPERS[2][2], "score": 9}]
    record["negative_ctxs"] = [{"title": "", "text": "1874 and 1874"}]
    example = decode(record)
    (gold,) = example.annotations or ()
    assert (gold.candidate, example.text(gold.shorts[0])) == (0, "1874")
    assert [p.title for p in example.passages or ()] == ["Skerry Point", "", "Tom Hale", ""]
    assert {p.score for p in example.passages or ()} == {None}
    unused = decode(record | {"answers": ["Tom Hale"]})
    assert (unused.annotations, unused.answers) == (None, ("Tom Hale",))


@pytest.mark.parametrize(
    ("passages", "answer", "rank", "found"),
    [
        (
            [("Ada Brenn", "She built it."), ("Mill", "By Ada Brenn.")],
            "Ada Brenn",
            2,
            ["Ada Brenn"],
        ),
        ([("", "1.5 or 2.5"), ("", "5 or 7")], "5", 1, ["5"]),  # DPR finds 5 in 1.5
        ([("", "It is O\u2019Hara\u2019s.")], "O'Hara", None, []),
        ([("", "Yes, it is.")], "yes", 1, []),
    ],
)
def test_gold_is_where_has_answer_of_dpr_finds_it(
    passages: Any, answer: str, rank: int | None, found: list[str]
) -> None:
    several = [(f"p{n}", title, text) for n, (title, text) in enumerate(passages)]
    for shape in (dpr, training):
        example = decode(shape("q", several, [answer]))
        spans = [span for gold in example.annotations or () for span in gold.shorts]
        assert (example.answer_rank, list(map(example.text, spans))) == (rank, found)
        assert example.lost_at_retrieval == (rank is None)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"ctxs": "p1"}, "'ctxs' must be an array"),
        ({"ctxs": [{"text": "a"}, None]}, "ctxs[1] must be an object, found null"),
        ({"ctxs": [{"title": "a"}]}, "missing field 'ctxs[0].text'"),
        (
            {"ctxs": None, "retrieval_result": [{"id": "a"}]},
            "missing field 'retrieval_result[0].contents'",
        ),
        ({"ctxs": [{"text": 5}]}, "'ctxs[0].text' must be a string, found an integer"),
        ({"ctxs": [{"text": "a", "score": 1e999}]}, "ctxs[0].score must be a finite number"),
        ({"ctxs": [{"text": "a", "score": [1]}]}, "ctxs[0].score must be a finite number"),
        ({"ctxs": [{"title": 5, "text": "a"}]}, "'ctxs[0].title' must be"),
        ({"answers": [None]}, "answers[0].text must be"),
    ],
)
def test_a_broken_record_costs_no_other(tmp_path: Path, fields: Any, reason: str) -> None:
    several = [dpr(key, KEEPERS, [1986]) for key in "abc"]
    several[1] |= fields
    first, second, third = records(dump_list(tmp_path / "a.json", several))
    assert isinstance(first[1], Example) and first[1].answers == ("1986",)
    assert isinstance(third[1], Example) and third[0] == 3
    assert isinstance(second[1], DeadLetter)
    assert second[0] == 2 and reason in second[1].reason


RAGAS = "It was built in 1874.\nAda Brenn built it.", "It was automated in 1986."


@pytest.mark.parametrize(
    "fields",
    [
        {"user_input": QUESTION, "retrieved_contexts": RAGAS, "reference": "1986"},
        {"question": QUESTION, "contexts": RAGAS, "ground_truth": "1986"},
        {"query": QUESTION, "retrieved_contexts": RAGAS, "answers": ["1986"]},
    ],
)
def test_passages_as_plain_texts(fields: Any, tmp_path: Path) -> None:
    """A text has no title, and ``answer`` is that of the program which RAGAS evaluates."""
    record = {**fields, "answer": "1874", "response": "1874"}
    path = write_lines(tmp_path / "a.jsonl", [record])
    (example,) = read_examples(path)
    dump_list(tmp_path / "a.json", [record], 1)
    (same,) = read_examples(tmp_path / "a.json")
    assert values_of(same) == values_of(example) | {"example_id": same.example_id}
    assert (example.question, example.answers) == (QUESTION, ("1986",))
    assert example.passages == (Passage(None, "", 1), Passage(None, "", 2))
    assert [example.text(c.span) for c in example.candidates] == list(RAGAS)
    assert not inputs.is_official(str(path))


def test_plain_texts_without_gold_or_passages(tmp_path: Path) -> None:
    rows: list[Any] = [
        {"user_input": "a", "retrieved_contexts": []},
        {"question": "a", "contexts": ["It rains."], "answer": "1874"},
        {"question": "a", "contexts": [], "answer": "1874"},
    ]
    found = list(read_examples(write_lines(tmp_path / "a.jsonl", rows)))
    assert [example.answers for example in found] == [None, None, ("1874",)]
    assert [len(example.passages or ()) for example in found] == [0, 1, 0]


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"question": "who", "answer": ["Ada"]}, "retrieve passages for it"),
        ({"id": "1", "input": "who", "output": [{"answer": "Ada"}]}, "KILT"),
    ],
)
def test_questions_without_passages_say_what_is_missing(
    record: Any, words: str, tmp_path: Path
) -> None:
    (reason,) = reasons(write_lines(tmp_path / "a.jsonl", [record]))
    assert words in reason and "Pyserini" in reason and "\n" not in reason


# --- lists and objects --------------------------------------------------------------------


def test_a_list_may_have_records_of_any_dialect(tmp_path: Path) -> None:
    several = [simplified(1), own_data.QUESTIONS[2] | {"context": "It rains."}]
    for indent in (None, 0, "\t"):
        text = "\ufeff \n" + json.dumps(several, indent=indent)
        (tmp_path / "a.json").write_bytes(gzip.compress(text.encode()))
        assert ids(tmp_path / "a.json") == [1, "q3"]
    (tmp_path / "b.json").write_text("[]")
    assert items(tmp_path / "b.json") == []


RECORDS = [dpr(f'q{n} "]}}\\', KEEPERS, ["\n\\"]) for n in range(5)]
TEXTS_OF_RECORDS = [json.dumps(record) for record in RECORDS]


def read_elements(data: bytes, n_head: int = 200) -> list[Any]:
    file = io.BytesIO(data)
    return [lines.parsed(row) for row in elements.elements(file, file.read(n_head))]


@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize("size", [1, 64])
def test_elements_are_those_of_json_wherever_a_chunk_ends(
    indent: int | None, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elements, "CHUNK_BYTES", size)
    odd = [{"": "\\" * n + '"' * n} for n in range(9)] + [{"[{,": [[], {}, [{}]], "é": "\ud83d"}]
    several = [*RECORDS, *odd]
    text = json.dumps(several, indent=indent)
    expected = [lines.json_value(json.dumps(one).encode()) for one in several]
    assert read_elements(text.encode(), 1) == expected
    by_id = {f'{n}"\\': one for n, one in enumerate(several)}
    text = json.dumps(by_id, indent=indent)
    named = [{"id": key, **one} for key, one in zip(by_id, expected, strict=True)]
    assert read_elements(text.encode(), 1) == named


@pytest.mark.parametrize(
    "bad", ["null", "[[1, 2], [3]]", '{"a": "\xff"}', '{"a": 1e999999, "b": 1}']
)
def test_an_element_that_is_no_record_costs_no_other(bad: str, tmp_path: Path) -> None:
    texts = [*TEXTS_OF_RECORDS]
    texts[2:2] = [bad]
    path = tmp_path / "a.json"
    path.write_bytes(f"[{', '.join(texts)}]".encode("latin-1"))
    assert [reason == "" for reason in reasons(path)] == [True] * 2 + [False] + [True] * 3


BROKEN = (
    *('{"id": "a", "question": "a"', '{"id": "a", "ctxs": [{"text": "b', '{"id": "a", "x": [1}]}'),
    *('{"a": "b"} {"a": "b"}', "{'a': 1}", "{}}", "[" * 2000 + "]" * 2000),
)


@pytest.mark.parametrize("broken", BROKEN)
def test_a_file_ends_with_an_error_where_an_element_is_no_json(broken: str, tmp_path: Path) -> None:
    """What follows may be a part of another record, and is not read."""
    texts = [*TEXTS_OF_RECORDS]
    start = len(f"[{', '.join(texts[:2])}")
    texts[2:2] = [broken]
    path = tmp_path / "a.json"
    path.write_text(f"[{', '.join(texts)}]")
    rows = inputs.rows(str(path))
    assert [row for _, row in itertools.islice(rows, 2)] == [text.encode() for text in texts[:2]]
    with pytest.raises(ValueError, match=f"{path}, element 3: .* behind byte {start} of the file;"):
        list(rows)


def test_a_command_ends_where_an_element_is_no_json(tmp_path: Path, commands: Commands) -> None:
    path, output = tmp_path / "a.json", tmp_path / "windows"
    texts = *TEXTS_OF_RECORDS[:4], BROKEN[0], TEXTS_OF_RECORDS[4]
    path.write_text(f"[{', '.join(texts)}]")
    commands.out("preprocess", "--data", path, "--output", output, code=1)
    assert f"{path}, element 5: not JSON" in commands.err and commands.err.count("\n") == 1
    assert "elements read before it: 4" in commands.err
    assert not list(output.rglob("*.tfrecord*"))


def test_a_file_cut_off_in_an_element(tmp_path: Path) -> None:
    text = json.dumps(RECORDS)
    path = tmp_path / "a.json"
    starts = [i for i in range(len(text)) if text.startswith('"id": "q', i)]
    for n, start in enumerate(starts):
        for end in (*range(start + 2, start + 20), start + 100, start + 170):
            path.write_text(text[:end])
            good = [reason == "" for reason in reasons(path)]
            assert good == [True] * n + [False]
    for cut in (text[:-1], text + text):
        path.write_text(cut)
        assert [reason == "" for reason in reasons(path)] == [True] * 5 + [False]


def test_a_file_ends_with_an_error_where_an_element_is_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = {"id": "large", "x": ["é" * 500_000], "y": [[1, 2, 3]] * 100_000, "z": "\\" * 9_999}
    data = json.dumps([RECORDS[0], large, RECORDS[1]]).encode()
    monkeypatch.setattr(LIMITS, "bytes", 100_000)
    with limited_memory(4 << 20), pytest.raises(RecordError, match=r"too large: .* 100000 behind"):
        read_elements(data, 50)


def test_ten_thousand_passages_are_read_at_constant_memory(tmp_path: Path) -> None:
    generator, path = random.Random(0), tmp_path / "a.json"
    words = [f"w{n}" for n in range(1000)]
    passages = [(f"p{n}", f"T{n}", " ".join(generator.choices(words, k=8))) for n in range(100)]
    dump_list(path, [dpr(f"q{i}", passages, ["w1"]) for i in range(100)])
    with limited_memory(8 << 20):
        assert sum(len(one.passages or ()) for one in read_examples(path)) == 10_000
