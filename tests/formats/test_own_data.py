"""Tests questions of one's own: SQuAD, MRQA and CSV files, contexts, pages in a folder, gold."""

import gzip
import json
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.formats import inputs
from nq.formats.fields import LIMITS, RecordError
from nq.formats.own_data import PageFolder, list_pages
from nq.questions import read_examples
from nq.records import Example, Original, Span, YesNo, char_span
from tests.formats import own_data
from tests.formats.own_data import CONTEXT, placed
from tests.formats.reading import examples, golds, ids, items, reasons, records
from tests.support.nq_records import simplified, v1, write_lines

NFC, NFD = (unicodedata.normalize(form, "Sören Åkerlöf") for form in ("NFC", "NFD"))
ROW = "7{0}When was it built?{0}It was built in 1889.{0}1889"
PLACE = CONTEXT.index("1986")
HTML = "<title>The Tower</title><p>Built in <b>1889</b> by\r\nEiffel &amp; Co.</p>"


def write(path: Path, text: str) -> Path:
    data = text.encode("utf-8", "surrogateescape")
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def shorts(example: Example) -> list[str]:
    return [example.text(span) for a in example.annotations or () for span in a.shorts]


# --- SQuAD and MRQA -----------------------------------------------------------------------


@pytest.mark.parametrize(("name", "indent"), [("dev.json.gz", None), ("any name", 2)])
def test_a_squad_file_is_known_by_its_fields(name: str, indent: int | None, tmp_path: Path) -> None:
    path = write(tmp_path / name, "\ufeff" + json.dumps(own_data.squad(), indent=indent))
    first, _, last = examples(path)
    assert ids(path) == ["q1", "q2", "q3"]
    assert (first.title, first.answers, last.answers) == ("Skerry Point", ("1986",), ())
    assert [a.long for a in last.annotations or ()] == [None]
    assert [inputs.count_records(str(path), limit) for limit in (None, 2)] == [3, 2]


def test_data_may_have_the_questions_themselves(tmp_path: Path) -> None:
    flat = [{**question, "context": CONTEXT} for question in own_data.QUESTIONS]
    path = write(tmp_path / "a.json", json.dumps({"data": [*flat, {"x": 1}]}))
    squad = own_data.write_squad(tmp_path / "b.json")
    assert (ids(path), golds(path)) == (ids(squad), golds(squad))
    assert reasons(path) == ["", "", "", "data[3]: missing field 'paragraphs'"]


def test_a_bad_record_may_have_what_orjson_does_not_write(tmp_path: Path) -> None:
    deep = {"id": 1, "question": "", "x": json.loads("[" * 300 + "]" * 300)}
    (reason,) = reasons(own_data.write_squad(tmp_path / "a", deep))
    assert "question" in reason


def test_an_mrqa_file_is_known_by_its_fields(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "dev.jsonl.gz", own_data.mrqa())
    first, second, _ = examples(path)
    assert (first.answers, second.answers) == (("Tom Hale", "Hale"), None)
    assert shorts(first) == ["Tom Hale", "Hale"]
    reordered = [dict(reversed(line.items())) for line in own_data.mrqa()]
    for lines in (own_data.mrqa(), own_data.mrqa()[1:], reordered):
        assert ids(write_lines(tmp_path / "x", lines)) == ["m1", "m2", "m3"]


def test_a_squad_file_that_is_cut_off_or_has_a_too_large_article(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps(own_data.squad())
    path = write(tmp_path / "a.json", text[:-20])
    assert len(reasons(path)) == 1
    path.write_bytes(gzip.compress(text.encode())[:-12])
    assert len(reasons(path)) == 1
    write(path, text)
    for limit, value in (("document_values", 5), ("document_bytes", 300)):
        monkeypatch.setattr(LIMITS, limit, value)
        with pytest.raises(ValueError, match=f"element 1: too large.* limit is {value} "):
            reasons(path)


# --- CSV ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ('id,question,"source\n(URL)",context', "a,who,x,Ada"),
        ('"id\r\n","kind;\n""a""",question,context', "a,x,who,Ada"),
        ("id,question,context,,", "a,who,Ada,x,y"),
        ("id,question,context,,", "a,who,Ada"),
        (",id,x,question,x,context", "0,a,1,who,2,Ada"),
        ("\n,,\nid,question,context", "a,who,Ada"),
    ],
)
def test_names_that_are_not_needed(header: str, row: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a", f"{header}\r\n{row}\r\n{row}\r\n")
    first = (header + "\r\n").count("\n") + 1
    assert [(n, i.example_id) for n, i in records(path) if isinstance(i, Example)] == [
        (first, "a"),
        (first + 1, "a"),
    ]


def test_a_needed_name_twice_is_refused(tmp_path: Path, pages: PageFolder) -> None:
    path = write(tmp_path / "a.csv", "question,context,Answer,answer\nwho,Ada,x,y\n")
    with pytest.raises(ValueError, match="'answer'"):
        items(path)
    path = write(tmp_path / "b.csv", "question,File,File\nwho,tower,twice\n")
    assert reasons(path, pages=list_pages(pages.folder, "File")) != [""]


def test_a_null_character_does_not_cost_other_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "id,question,context\na,who,Ada\nb,w\0ho,A\0da\nc,who,Ada\n")
    assert {"a", "c"} <= set(ids(path))


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_csv_of_any_kind(separator: str, tmp_path: Path) -> None:
    end = "\n" if separator in ",;" else "\r\n"
    header = separator.join(["\ufeffID", " Question", '"Context"', "answer "])
    (example,) = examples(write(tmp_path / "x", header + end + ROW.format(separator) + end + end))
    assert (example.example_id, example.question) == (7, "When was it built?")
    assert example.answers == ("1889",)


def test_the_text_of_a_cell_is_kept(tmp_path: Path) -> None:
    context = 'He said: "so",\r\nand\tleft; caf\u00e9 \U0001f600.\n\nThe end'
    quoted = context.replace('"', '""')
    path = write(tmp_path / "a.csv.gz", f'question,context\nwho,"{quoted}"\nwhat,"x"\n')
    (first, example), (second, _) = records(path)
    assert isinstance(example, Example) and example.original is not None
    assert example.original.plain == context
    assert (first, second) == (2, 6)  # lines of the file, for an editor
    assert example.example_id == "a.csv.gz:2"
    assert inputs.is_official(str(path)) is False


def test_a_bad_row_does_not_cost_the_others(tmp_path: Path) -> None:
    bad = {
        "who": "2",
        'who,"a"b': "','",
        ",a": "'question'",
        "who,caf\udce9": "UTF-8",
    }
    found = reasons(write(tmp_path / "a.csv", "\n".join(["question,context", *bad, "who,good\n"])))
    for reason, expected in zip(found, [*bad.values(), ""], strict=True):
        assert expected in reason and bool(reason) == bool(expected)


def test_a_quote_that_is_not_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.csv", 'question,context\nwho,good\nwho,"' + "x\n" * 1000)
    assert [bool(reason) for reason in reasons(path)] == [False, True]
    monkeypatch.setattr(LIMITS, "bytes", 500)
    first, second = reasons(path)
    assert not first and "500" in second
    cells = ",".join(['"' + "x\n" * 100 + '"'] * 1000)  # each is below the limit
    assert reasons(write(path, f"question,context\nwho,good\nwho,{cells}\n")) == [first, second]


# --- contexts and gold --------------------------------------------------------------------

TEXT = st.lists(
    st.sampled_from(
        [
            *("Moon", "caf", "e\u0301", "\U0001f469\u200d\U0001f680", "\U0001f600", "full-time"),
            *("didn't", '"so"', "U.S.", "L.\r\nFrank", "1,642", "\x00", "\u00a0", "\u2029"),
            *(" ", "\t", "\n", "\r\n", "\r", "\r\n\r\n", "\n \n", "\ud83d", "日本", "(", ")."),
        ]
    )
    | st.text(max_size=4),
    min_size=1,
    max_size=30,
).map("".join)


def decode(pages: PageFolder | None = None, **fields: Any) -> Example:
    page = {} if pages or "page" in fields else {"context": CONTEXT}
    return inputs.decode_record({"id": 1, "question": "who"} | page | fields, pages)


def original(example: Example) -> Original:
    assert example.original is not None
    return example.original


@given(TEXT, st.data())
def test_places_are_those_of_the_text_in_the_context(text: str, data: st.DataObject) -> None:
    if not re.search(r"[^\s\x00-\x1f\x7f-\x9f\ud800-\udfff]", text):
        with pytest.raises(RecordError, match="'context'"):
            decode(context=text)
        return
    example = decode(context=text)
    words = [i for i, is_tag in enumerate(example.is_html) if not is_tag]
    chars = original(example).chars[words]
    assert (chars[:, 0] < chars[:, 1]).all() and (chars[:-1, 1] <= chars[1:, 0]).all()
    between = re.sub(r"[\s\x00-\x1f\x7f-\x9f\ud800-\udfff]", "", text)
    assert "".join(text[a:b] for a, b in chars) == between
    assert (original(example).chars[example.is_html] == -1).all()
    first, last = sorted(data.draw(st.sampled_from(words)) for _ in range(2))
    span = Span(first, last + 1)
    start, end = char_span(span, original(example)).values()
    assert text[start:end] == example.text(span) != ""
    # an answer that is given with this place is the same span, whatever its text
    answer = {"text": text[start:end], "answer_start": start}
    assert shorts(decode(context=text, answers=[answer])) == [text[start:end]]


@pytest.mark.parametrize(
    ("gold", "texts", "found"),
    [
        ({"answers": [placed("1986"), placed("1986")]}, 1, ["1986", "1986"]),
        ({"answers": {"text": ["1986"], "answer_start": [PLACE]}}, 1, ["1986"]),
        ({"answers": ["Ada Brenn", "Brenn, Ada"]}, 2, ["Ada Brenn"]),
        ({"answers": [placed("838")]}, 1, ["1838"]),
        # whole words, with other blanks and quotes, in both forms of Unicode, inside one block
        ({"context": "It often rains, 1.5 or 5 times.", "answers": ["ten", "5"]}, 2, ["5"]),
        ({"context": f"By {NFD} for $5 million.", "answers": [NFC, "$5 Million"]}, 2,
         [NFD, "$5 million"]),
        ({"context": "It is O\u2019Hara\u2019s.", "answer": "O'Hara"}, 1, ["O\u2019Hara"]),
        ({"answers": '["1986", "Dunmore"]'}, 2, ["1986", "Dunmore"]),  # a cell of CSV
        # lists and numbers as pandas writes them
        ({"answers": f"{{'text': array(['1986'], dtype='<U4'),\n 'answer_start': [{PLACE}]}}"}, 1,
         ["1986"]),
        ({"answers": "[np.str_('1986')]", "answer_start": f"[np.int64({PLACE})]"}, 1, ["1986"]),
        ({"answer": "1986", "answer_start": f"{PLACE}.0"}, 1, ["1986"]),
        ({"answer": placed("1986"), "is_impossible": "0.0"}, 1, ["1986"]),
        ({"answer": "1986", "is_impossible": "1.0"}, 0, []),
        # an empty text alone is no answer
        ({"answers": {"text": [""], "answer_start": [0]}}, 0, []),
        ({"answer": {"text": "", "answer_start": "-1"}}, 0, []),
    ],
)  # fmt: skip
def test_gold_is_read_as_text(gold: dict[str, Any], texts: int, found: list[str]) -> None:
    example = decode(**gold)
    assert len(example.answers or ()) == texts
    assert shorts(example) == found
    assert example.annotations


def test_no_answer_is_in_a_heading_and_in_the_text_below(tmp_path: Path) -> None:
    write(tmp_path / "a.html", "<h1>By Tom</h1><p>Hale.</p><ul><li>Tom</li><li>Hale</li></ul>")
    example = decode(list_pages(tmp_path), page="a", answers=["Tom Hale", "Hale"])
    assert shorts(example) == ["Hale", "Hale"]


def test_gold_is_optional() -> None:
    for gold in ({}, {"answer": ""}, {"is_impossible": False}):
        assert (decode(**gold).answers, decode(**gold).annotations) == (None, None)
    example = decode(answers=["Paris", "London"])  # not in the context
    assert (example.answers, example.annotations) == (("Paris", "London"), None)


def test_many_answers_that_are_nearly_in_a_page_do_not_take_hours() -> None:
    answers = ["moon", *(f"moon moon {i}" for i in range(500))]
    assert len(shorts(decode(context="moon " * 50_000, answers=answers))) == 100


def test_yes_and_no_are_no_places() -> None:
    (answer,) = decode(context="No, it is not.", answer="no").annotations or ()
    assert (answer.yes_no, answer.shorts, answer.candidate) == (YesNo.NO, (), 0)
    for value in (True, False):
        (answer,) = decode(answer=value).annotations or ()
        assert answer.yes_no is (YesNo.YES if value else YesNo.NO)
    (answer,) = decode(answer="Yes").annotations or ()
    assert (answer.yes_no, answer.candidate) == (YesNo.YES, None)  # of two paragraphs


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"answers": [placed("Tom Hale", 3)]}, "answers[0] is 'Tom Hale'"),
        ({"answers": [{"text": " ", "answer_start": 3}]}, "[3, 4)"),
        ({"answer": "1986", "answer_start": "-1.0"}, "-1: expected"),
        ({"answers": ["", "1986"]}, "answers"),
        ({"answers": "['1986' 'Dunmore']"}, "answers"),  # of numpy
        ({"answer": "True"}, "True"),
        ({"page": "../pages/tower.html"}, "4 pages"),
        ({"page": "sub/twice"}, "twice.htm or twice.txt"),
        ({"page": "wrong"}, "wrong.txt"),
        ({"page": "tower", "answers": [{"text": "1889", "answer_start": 3}]}, "answer"),
    ],
)
def test_a_bad_record_has_a_reason(fields: dict[str, Any], reason: str, pages: PageFolder) -> None:
    with pytest.raises(RecordError, match=re.escape(reason)):
        decode(pages if "page" in fields else None, **fields)


# --- pages in a folder --------------------------------------------------------------------


@pytest.fixture
def pages(tmp_path: Path) -> PageFolder:
    folder = tmp_path / "pages"
    (folder / "sub").mkdir(parents=True)
    (folder / "tower.html").write_text(HTML, newline="")
    (folder / "sub" / "twice.txt").write_text("One.")
    (folder / "sub" / "twice.htm").write_text("<p>Two.")
    (folder / "wrong.txt").write_bytes(b"%PDF-1.7")
    return list_pages(folder)


def test_accents_of_a_name_may_be_composed_or_not(tmp_path: Path) -> None:
    name, other = (unicodedata.normalize(form, "Zoë") for form in ("NFC", "NFD"))
    write(tmp_path / f"{name}.txt", "one word")
    for title in (name, other, f"{other}.txt"):
        assert decode(list_pages(tmp_path), page=title).tokens[1:3] == ["one", "word"]
    write(tmp_path / f"{other}.txt", "two words")  # then each name is its file
    for title, first in ((name, "one"), (other, "two")):
        assert decode(list_pages(tmp_path), page=title).tokens[1] == first


@pytest.mark.parametrize("name", ["tower.html", "tower", " ./tower.html"])
def test_a_page_is_named_with_or_without_its_suffix(name: str, pages: PageFolder) -> None:
    example = decode(pages, page=name, answer="Eiffel & Co.")
    assert (example.title, example.answers) == ("The Tower", ("Eiffel & Co.",))
    (answer,) = example.annotations or ()
    assert example.text(answer.shorts[0]) == "Eiffel & Co."
    assert example.text(example.candidates[0].span) == "Built in 1889 by Eiffel & Co."
    place = original(example).place(answer.shorts[0])
    assert place is not None and HTML[slice(*place)] == "Eiffel &amp; Co."
    with pytest.raises(RecordError, match="'context'"):
        decode(page=name)


@pytest.mark.parametrize(
    ("fields", "others"),
    [
        (v1(), "document_tokens"),
        ({"document": "It snows."}, ""),
        ({"contexts": ["It snows."], "answers": None, "answer": "rains"}, "contexts"),
        ({"document_text": "It snows.", "ctxs": [{"text": "It snows."}]}, "document_text, ctxs"),
    ],
)
def test_a_record_with_a_context_is_own_data_whatever_else_it_has(
    fields: Any, others: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inputs._mention_pages.cache_clear()
    record = {"answers": ["rains"], **fields, "question": "who", "context": "It rains."}
    path = write_lines(tmp_path / "a.jsonl", [record, record | {"id": 2}])
    for example in examples(path):
        assert example.text(example.candidates[0].span) == "It rains."
        assert example.answers == ("rains",)
    messages = [one.getMessage() for one in caplog.records if "pages" in one.getMessage()]
    expected = f"a record has pages in the fields context and {others}: context is read"
    assert messages == ([expected] if others else [])


def test_a_context_that_is_none_leaves_the_other_page(tmp_path: Path) -> None:
    retrieved = {"question": "who", "ctxs": [{"text": "It snows."}]}
    several: list[Any] = [
        *({**retrieved, "id": i, "context": other} for i, other in enumerate((None, " ", ["a"]))),
        {**simplified(7), "context": "It rains."},
    ]
    examples = read_examples(write_lines(tmp_path / "a.jsonl", several))
    texts = [example.text(example.candidates[0].span) for example in examples]
    assert texts[:3] == ["It snows."] * 3
    assert len(texts) == 4 and texts[3] != "It rains."
