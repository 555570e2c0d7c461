"""The bundled sample: up to date, small, well formed, with the answers of its sources."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from experiments import make_sample
from nq.evaluation.evaluate import Evaluation
from nq.formats.inputs import read_examples
from nq.formats.predictions import encode_prediction
from nq.records import Prediction

Record = dict[str, Any]

LINES = make_sample.SAMPLE.read_text(encoding="utf-8").splitlines()
RECORDS: list[Record] = [json.loads(line) for line in LINES]
each_record = pytest.mark.parametrize("record", RECORDS, ids=lambda r: r["question_text"])

SOURCE = """# Lake

It is 25 meters deep and 25 years old.

| ! Lake |
| ! Islands | Olkhon |

- One
- Two

---
"""


def tokens(record: Record) -> list[str]:
    return str(record["document_text"]).split(" ")


def kind(gold: Record) -> str:
    """Returns the kind of answer of an annotation."""
    if gold["long_answer"]["candidate_index"] == -1:
        return "none"
    if gold["yes_no_answer"] != "NONE":
        return str(gold["yes_no_answer"])
    return {0: "long", 1: "short"}.get(len(gold["short_answers"]), "several")


def write(folder: Path, questions: str) -> Path:
    (folder / "lake.txt").write_text(SOURCE + questions, encoding="utf-8")
    return folder


def test_the_committed_file_is_up_to_date() -> None:
    assert make_sample.main(["--check"]) == 0


def test_check_fails_on_a_changed_or_missing_file_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "questions.jsonl"
    assert make_sample.main(["--check", "--output", str(output)]) == 1
    assert not output.exists()
    assert make_sample.main(["--output", str(output)]) == 0
    assert output.read_bytes() == make_sample.SAMPLE.read_bytes()
    output.write_bytes(output.read_bytes()[:-2])
    assert make_sample.main(["--check", "--output", str(output)]) == 1
    assert "run python -m experiments.make_sample" in capsys.readouterr().err


def test_size_and_counts() -> None:
    bundled = [path for path in make_sample.SAMPLE.parent.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in bundled) < 150_000
    assert len({record["document_title"] for record in RECORDS}) == 12
    counts = {"short": 22, "several": 3, "long": 4, "YES": 4, "NO": 3, "none": 4}
    assert Counter(kind(record["annotations"][0]) for record in RECORDS) == counts


def test_the_annotators_of_a_question_are_five_and_give_the_same_kind_of_answer() -> None:
    for record in RECORDS:
        assert len(record["annotations"]) == 5
        kinds = {kind(gold).replace("several", "short") for gold in record["annotations"]}
        assert len(kinds) == 1, record["question_text"]
    texts = {
        " ".join(tokens(record)[short["start_token"] : short["end_token"]])
        for record in RECORDS
        for gold in record["annotations"]
        for short in gold["short_answers"]
    }
    assert texts >= {"42.195", "42.195 kilometers"}


@pytest.mark.parametrize("annotator", range(5))
def test_the_answers_of_each_annotator_as_predictions_are_perfect(annotator: int) -> None:
    evaluation = Evaluation()
    for example in read_examples(make_sample.SAMPLE):
        answer = (example.annotations or ())[annotator]
        prediction = Prediction(
            example.example_id, answer.long, 1.0, answer.shorts, 1.0, answer.yes_no
        )
        assert evaluation.add(example, encode_prediction(prediction)) is True
    metrics = evaluation.metrics()
    assert {value for name, value in metrics.items() if "f1" in name} == {1.0}
    assert metrics["long-answer-n"] == 40


def test_tables_and_lists_contain_answers() -> None:
    golds = [(tokens(r), r["annotations"][0]["long_answer"]["start_token"]) for r in RECORDS]
    first = Counter(words[start] for words, start in golds if start >= 0)
    assert first["<Table>"] >= 2
    assert first["<Ul>"] + first["<Ol>"] >= 2
    assert first["<P>"] >= 20


def test_ids_are_distinct_signed_64_bit_numbers() -> None:
    ids = [record["example_id"] for record in RECORDS]
    assert len(set(ids)) == 40
    assert min(ids) < 0 < max(ids)
    assert all(-(2**63) <= number < 2**63 for number in ids)
    annotations = {gold["annotation_id"] for r in RECORDS for gold in r["annotations"]}
    assert len(annotations) == 5 * 40


@each_record
def test_questions_read_like_real_ones(record: Record) -> None:
    assert re.fullmatch(r"[a-z0-9' ]+", record["question_text"])


@each_record
def test_the_document_is_tokens_and_balanced_tags(record: Record) -> None:
    words = tokens(record)
    assert 250 <= len(words) <= 450
    assert all(words)
    open_: list[str] = []
    for word in words:
        if word.startswith("</"):
            assert open_.pop() == word[2:-1]
        elif word.startswith("<"):
            open_.append(word[1:-1].split("_")[0])
        else:
            assert not re.search(r'[\s"<>]', word)
            assert len(word) == 1 or not re.search(r"[,;:()]$", word)
    assert not open_


@each_record
def test_candidates_are_all_the_blocks_from_opening_to_closing_tag(record: Record) -> None:
    words = tokens(record)
    spans = [(c["start_token"], c["end_token"]) for c in record["long_answer_candidates"]]
    opening = [n for n, word in enumerate(words) if re.fullmatch(r"<(P|Table|Tr|[UO]l|Li)>", word)]
    assert [start for start, _ in spans] == opening
    for (start, end), candidate in zip(spans, record["long_answer_candidates"], strict=True):
        tag = words[start][1:-1]
        opened = words[start:end].count(f"<{tag}>")
        assert words[end - 1] == f"</{tag}>"
        assert opened == words[start:end].count(f"</{tag}>")
        inside = any(a < start and end < b for a, b in spans)
        assert candidate["top_level"] is not inside


@each_record
def test_gold_answers_are_in_a_candidate_the_first_in_a_top_level_one(record: Record) -> None:
    for annotator, gold in enumerate(record["annotations"]):
        long, shorts = gold["long_answer"], gold["short_answers"]
        if kind(gold) == "none":
            assert (long["start_token"], long["end_token"], shorts) == (-1, -1, [])
            assert gold["yes_no_answer"] == "NONE"
            continue
        candidate = record["long_answer_candidates"][long["candidate_index"]]
        assert candidate["top_level"] or annotator > 0
        extent = long["start_token"], long["end_token"]
        assert extent == (candidate["start_token"], candidate["end_token"])
        for short in shorts:
            assert extent[0] < short["start_token"] < short["end_token"] < extent[1]
        assert gold["yes_no_answer"] == "NONE" or not shorts


def test_short_answers_are_those_of_the_sources() -> None:
    written = {
        question.text: [
            [re.sub(r".*\[|\].*", "", text) for text in answer.shorts]
            for answer in question.answers
            for _ in range(answer.annotators)
        ]
        for article in make_sample.articles()
        for question in article.questions
    }
    for record in RECORDS:
        words = tokens(record)
        for gold, expected in zip(
            record["annotations"], written[record["question_text"]], strict=True
        ):
            shorts = gold["short_answers"]
            texts = ["".join(words[s["start_token"] : s["end_token"]]) for s in shorts]
            plain = [re.sub("``|''", '"', text) for text in texts]
            assert plain == [text.replace(" ", "") for text in expected]


def test_a_row_and_the_agreement_of_annotators(tmp_path: Path) -> None:
    write(tmp_path, "? which islands\nlong: 2 x2\nshort: Olkhon\nlong: 2.2\nlong: none\n")
    (record,) = (json.loads(line) for line in make_sample.build(tmp_path).splitlines())
    first, second, third, fourth = record["annotations"]
    assert {**first, "annotation_id": 0} == {**second, "annotation_id": 0}
    assert kind(first) == "short" and kind(third) == "long" and kind(fourth) == "none"
    start, end = (third["long_answer"][name] for name in ("start_token", "end_token"))
    row = "<Tr> <Th> Islands </Th> <Td> Olkhon </Td> </Tr>"
    assert " ".join(tokens(record)[start:end]) == row


def test_brackets_select_one_of_two_equal_answers(tmp_path: Path) -> None:
    write(tmp_path, "? how old is it\nlong: 1\nshort: [25] years\n")
    (record,) = (json.loads(line) for line in make_sample.build(tmp_path).splitlines())
    (short,) = record["annotations"][0]["short_answers"]
    words = tokens(record)
    assert words[short["start_token"] : short["end_token"] + 1] == ["25", "years"]
    assert '<Tr> <Th_colspan="2"> Lake </Th> </Tr>' in record["document_text"]


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ("? how deep\nlong: 1\nshort: 26", r"lake.txt:13: found '26' 0 times"),
        ("? how deep\nlong: 1\nshort: 25", r"lake.txt:13: found '25' 2 times.*around \[ \]"),
        ("? how deep\nlong: 4", r"block 4, expected 1 to 3"),
        ("? how deep\nlong: 0", r"block 0, expected 1 to 3"),
        ("? how deep\nlong: 3.3", r"lake.txt:13: block 3.3, expected 3.1 to 3.2"),
        ("? how deep\nlong: 1.1", r"block 1.1, expected one with rows or items"),
        ("? how deep\nlong: 1 x0", r"found 'long: 1 x0', expected"),
        ("? how deep\nshort: 25", r"found 'short: 25', expected a line 'long: N\|none' before it"),
        ("? how deep", r"no 'long:' line"),
        ("? how deep\nlong: first", r"found 'long: first', expected"),
        ("? how deep\nlong: none\nshort: 25", r"has an answer but no long one"),
        ("? is it\nlong: 1\nshort: 25\nyes_no: YES", r"both short and yes_no"),
        ("? is it\nlong: 1\nyes_no: maybe", r"found 'yes_no: maybe'"),
        ("long: 1", r"expected a line '\? question'"),
    ],
)
def test_mistakes_in_a_source_are_reported(tmp_path: Path, questions: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_sample.build(write(tmp_path, questions))


def test_a_source_needs_a_title_a_rule_and_no_tags(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.txt").write_text("# Lake\n\nDeep.\n", encoding="utf-8")
    assert make_sample.main(["--check", "--sources", str(tmp_path)]) == 1
    assert "make_sample: bad.txt: expected '# Title'" in capsys.readouterr().err
    (tmp_path / "bad.txt").write_text("# Lake\n\n<P> Deep.\n\n---\n", encoding="utf-8")
    with pytest.raises(ValueError, match="stand for tags only"):
        make_sample.build(tmp_path)
