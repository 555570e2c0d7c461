"""Tests the reader with a tiny model: the same answers as a run, and its alternatives."""

import itertools
import pickle
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pandas
import pytest

import nq
from nq.evaluation.answer_files import PREDICTIONS
from nq.formats.outputs import encode_prediction


@pytest.fixture(scope="module")
def reader(tiny_model: Path) -> Iterator[nq.Reader]:
    with nq.load(tiny_model, profile="baseline", batch_size=7) as reader:
        yield reader


@pytest.mark.slow
def test_predictions_are_those_of_a_run(tiny_model: Path, tmp_path: Path) -> None:
    files, profile = [tmp_path / "data.jsonl"], "mixed+prune+rescore"
    lines = nq.bundled_sample().read_bytes().splitlines(keepends=True)
    files[0].write_bytes(b"".join(lines[:12]))
    result = nq.run(nq.Job(files, tiny_model, profile, output=tmp_path / "run"))
    written = orjson.loads((result.folder / PREDICTIONS).read_bytes())["predictions"]
    with nq.load(tiny_model, profile=profile, batch_size=7) as reader:
        predictions = list(reader.predict(nq.read_examples(files)))
    assert len(predictions) == result.examples
    assert sum(prediction.answered for prediction in predictions) == result.answered
    for prediction, expected in zip(predictions, written, strict=True):
        encoded = encode_prediction(prediction)
        for score in ("long_answer_score", "short_answers_score"):
            assert encoded.pop(score) == pytest.approx(expected.pop(score), abs=1e-5)
        assert encoded == expected
    assert nq.evaluate(files, result.folder / PREDICTIONS) == result.metrics


@pytest.mark.parametrize("name", ["report.pdf", "Notes/Lake.MD\n", "../lake", "~/dev.jsonl.gz"])
def test_the_name_of_a_missing_file_is_no_page(reader: nq.Reader, name: str) -> None:
    pages: list[Any] = [name, [name], [nq.page_from_text("the lake"), name]]
    for page in pages:
        with pytest.raises(FileNotFoundError, match=re.escape(name.strip())):
            reader.ask("is the lake deep", page)
    reader.ask("is the lake deep", f"it is in {name}")


def test_the_documents_of_a_folder_are_read(reader: nq.Reader, tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    (folder / "old").mkdir(parents=True)
    (folder / "a.md").write_text("The lake is deep.")
    (folder / "old" / "b.txt").write_text("The tower is on the lake.")
    files = [folder / "a.md", folder / "old" / "b.txt"]
    question = "is the lake deep"
    expected = reader.ask(question, list(files))
    for source in (folder, [folder], [files[0], folder / "old"]):
        assert reader.ask(question, source) == expected
    assert reader.ask([question], folder) == reader.ask([(question, folder)]) == [expected]
    (folder / "c.pdf").write_bytes(b"no document")
    (skipped,) = reader.ask(question, folder).skipped
    assert skipped.startswith(str(folder / "c.pdf"))


def test_alternatives_are_other_blocks_of_the_page_best_first(reader: nq.Reader) -> None:
    blocks = ["the lake is deep", "old lakes", "is the lake old", "a b c"]
    page = nq.page_from_text("\n\n".join(blocks))
    for top in (0, 1, 3, 10):
        answer = reader.ask("is the lake deep", page, top)
        others = answer.alternatives
        assert len(others) == min(top, len(blocks) - 1)
        assert answer.long in blocks
        assert {a.long for a in others} <= set(blocks) - {answer.long}
        assert len({a.long for a in others}) == len(others)
        probabilities = [a.long_probability or 0 for a in (answer, *others)]
        assert probabilities == sorted(probabilities, reverse=True)
        for alternative in others:
            assert 0 <= (alternative.short_probability or 0) <= 1
            long = alternative.long_span
            assert long and all(long.contains(short) for short in alternative.short_spans)


@pytest.mark.slow
def test_examples_are_read_as_predictions_are_taken(reader: nq.Reader) -> None:
    """Memory does not grow with the input."""
    taken = 0

    def examples() -> Iterator[nq.Example]:
        nonlocal taken
        for example in nq.read_examples(nq.bundled_sample()):
            taken += 1
            yield example

    predictions = reader.predict(examples())
    assert taken == 0
    next(predictions)
    assert 0 < taken < 40
    assert len(list(predictions)) == 39
    assert taken == 40


def test_questions_and_pages_in_a_list_are_answered_in_order(
    reader: nq.Reader, tmp_path: Path
) -> None:
    html = "<p>is the lake old</p><p>a b c</p>"
    file = tmp_path / "page.html"
    file.write_text(html, encoding="utf-8")
    questions = ["is the lake deep", "old lakes"]
    for source in ("the lake is deep\n\nold lakes", html, file):
        single = [reader.ask(question, source, 1) for question in questions]
        pairs = [(question, source) for question in questions]
        about_one = (reader.ask(several, source, 1) for several in (questions, tuple(questions)))
        about_each = (reader.ask(several, top=1) for several in (pairs, tuple(pairs)))
        for answers in (*about_one, *about_each):
            for answer, expected in zip(answers, single, strict=True):
                assert answer.question == expected.question
                assert (answer.text, answer.long) == (expected.text, expected.long)
                probability = pytest.approx(expected.short_probability, abs=1e-5)
                assert answer.short_probability == probability
    assert [one.long for one in single] == [reader.ask(q, html).long for q in questions]
    assert reader.ask([], html) == reader.ask([]) == reader.ask(()) == []


ROWS: list[dict[str, Any]] = [
    {
        "question": f"is lake {i} deep",
        "context": f"lake {i} is deep.\n\nlake {i % 3} is old",
        "id": i,
    }
    for i in range(20)
]
FRAME = pandas.DataFrame(ROWS)


def test_frames_and_series_are_lists(reader: nq.Reader) -> None:
    questions, contexts = FRAME["question"], FRAME["context"]
    expected = reader(ROWS, top_k=2)
    assert isinstance(expected, list)
    assert reader(FRAME, top_k=2) == reader(question=questions, context=contexts, top_k=2)
    assert reader(FRAME.iloc[::-1], top_k=2)[::-1] == reader({**FRAME}, top_k=2) == expected
    text, some = contexts[0], list(questions)
    assert reader(questions, text) == reader(some, text)
    assert reader.ask(FRAME) == reader.ask(ROWS)
    assert reader.ask(questions, text) == reader.ask(some, text)
    assert reader.ask(some[0], contexts) == reader.ask(some[0], list(contexts))
    for call in (reader, reader.ask):
        with pytest.raises(ValueError, match=r"(context|page) is None"):
            call(FRAME.rename(columns={"context": "text"}))
    with pytest.raises(ValueError, match="20 in a list"):
        reader(questions, contexts[:3])


def about(answers: Iterable[Any]) -> list[dict[str, Any]]:
    """Returns what is compared of answers; the low bits of scores may differ between batches."""
    return [
        one
        if isinstance(one, dict)
        else {"text": one.text, "long": one.long, "score": one.short_probability}
        for one in answers
    ]


def test_an_iterator_is_answered_one_by_one(reader: nq.Reader) -> None:
    read = 0

    def endless() -> Iterator[dict[str, Any]]:
        nonlocal read
        for row in itertools.cycle(ROWS):
            read += 1
            yield row

    expected, answers = (
        [pytest.approx(one, abs=1e-5) for one in about(several)]
        for several in (reader(ROWS), reader.ask(ROWS))
    )
    for size, results, wanted in (
        (1, reader(endless()), expected),
        (7, reader(endless(), batch_size=7), expected),
        (1, reader.ask(endless()), answers),
    ):
        assert read == 0 and isinstance(results, Iterator)
        first = list(itertools.islice(results, 15))
        assert read == -(-15 // size) * size
        assert about(first) == wanted[:15]
        read = 0
    questions = (row["question"] for row in ROWS)
    context = ROWS[0]["context"]
    of_list = reader([row["question"] for row in ROWS], context)
    assert list(reader(questions, context)) == [pytest.approx(one, abs=1e-5) for one in of_list]
    assert list(reader(iter([]), context)) == list(reader.ask(iter([]))) == []
    results = reader(iter([*ROWS[:2], {"question": " "}]))
    assert [next(results), next(results)] == expected[:2]
    with pytest.raises(ValueError, match="question is"):
        next(results)
    with pytest.raises(ValueError, match="top is -1"):
        reader.ask(endless(), top=-1)
    wrong: dict[str, Any]
    for wrong in ({"top_k": 0}, {"batch_size": True}, {"batch_size": 0}, {"batch_size": "4"}):
        ((name, value),) = wrong.items()
        for several in (ROWS, endless()):
            with pytest.raises(ValueError, match=f"{name} is {value!r}"):
                reader(several, **wrong)


def test_a_dataset_is_streamed(reader: nq.Reader) -> None:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_list(ROWS * 7)
    for call in (reader, reader.ask):
        expected = [pytest.approx(one, abs=1e-5) for one in about(call(ROWS))]
        for data in (rows, rows.to_iterable_dataset()):
            results = call(data)
            assert isinstance(results, Iterator) and about(results) == expected * 7
    columns = rows["question"], rows["context"]
    assert reader(*columns) == reader({"question": columns[0], "context": columns[1]})
    assert reader(rows[:20]) == reader(ROWS)


def test_answers_about_several_documents_name_theirs(reader: nq.Reader, tmp_path: Path) -> None:
    texts = ["the lake is deep\n\nold lakes", "is the lake old\n\na b c", "no lake is here"]
    (tmp_path / "old.txt").write_text(texts[1], encoding="utf-8")
    documents: list[Any] = [texts[0], tmp_path / "old.txt", nq.page_from_text(texts[2])]
    sources = dict(zip(["document 1", str(tmp_path / "old.txt"), "document 3"], texts, strict=True))
    answer = reader.ask("is the lake deep", documents, top=4)
    values = answer.to_dict()
    assert len(answer.alternatives) == 4 and values["unread_blocks"] == 0
    for one in (values, *values["runners_up"]):
        block = one["long_answer"]
        source = sources[one["document"]]
        assert source[block["start_char"] : block["end_char"]] == block["text"]
        assert source.split("\n\n")[block["block"] - 1] == block["text"]
    assert {other.document for other in (answer, *answer.alternatives)} == set(sources)
    (again,) = reader.ask([("is the lake deep", documents)], top=4)
    (same,) = reader.ask(["is the lake deep"], documents, top=4)
    assert repr(again) == repr(same) == repr(answer)
    assert reader.ask("is the lake deep", texts[:1]) == reader.ask("is the lake deep", texts[0])
    with pytest.raises(ValueError, match="page"):
        reader.ask("is the lake deep", [])


@pytest.mark.parametrize("max_answer_len", [1, 3, 15])
@pytest.mark.parametrize("impossible", [False, True])
def test_a_call_returns_what_the_pipeline_of_transformers_did(
    reader: nq.Reader, max_answer_len: int, impossible: bool
) -> None:
    question, context = "is the lake deep", "  the lake,\tis deep.\n\nold   lakes"
    options: dict[str, Any] = {
        "max_answer_len": max_answer_len,
        "handle_impossible_answer": impossible,
    }
    several = reader(question=question, context=context, top_k=5, **options)
    assert 1 < len(several) <= 5
    for answer in several:
        assert list(answer) == ["score", "start", "end", "answer"]
        assert context[answer["start"] : answer["end"]] == answer["answer"]
    words = [answer for answer in several if answer["answer"]]
    assert len(several) - len(words) == impossible
    assert len({(answer["start"], answer["end"]) for answer in words}) == len(words)
    assert reader({"question": question, "context": context}, **options) == several[0]
    assert reader([question], [context], **options) == several[:1]
    with pytest.raises(ValueError, match="doc_stride is 8"):
        reader(question, context, doc_stride=8)


@pytest.mark.parametrize("source", ["the lake\n is deep\n\nold lakes", "<p>the lake</p><p>old</p>"])
def test_answers_are_values_that_pickle(reader: nq.Reader, source: str) -> None:
    answer = reader.ask("is the lake deep", source)
    copy = pickle.loads(pickle.dumps(answer))
    assert copy == answer and hash(copy) == hash(answer) and repr(copy) == repr(answer)
    assert repr(answer.text) in repr(answer) and "\n" not in repr(answer)
    assert repr(answer.page).startswith("Page(") and " words, 'the lake" in repr(answer.page)
