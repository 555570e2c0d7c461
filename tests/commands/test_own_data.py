"""Tests all commands with questions and texts of a user's own."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Commands
from tests.formats import own_data
from tests.support.nq_records import write_lines

PARAGRAPH = "The <b>Eiffel</b> Tower was built in 1889 by Eiffel &amp; Co."
HTML = f"<title>Tower</title>\r\n<p>{PARAGRAPH}</p>"


def load(path: Path) -> Any:
    return json.loads(path.read_bytes())


@pytest.mark.slow
def test_a_squad_file_from_end_to_end(tmp_path: Path, commands: Commands) -> None:
    """One record is bad, and one has the id of another."""
    bad = {"id": "q4", "question": "Who kept it?", "answers": [own_data.placed("Tom Hale", 3)]}
    twice = own_data.QUESTIONS[1] | {"question": "Who built it?"}
    squad = own_data.write_squad(tmp_path / "own.json", *own_data.QUESTIONS, bad, twice)
    run = tmp_path / "run"
    options = ["--data", squad, "--output", run, "--no-track", "--formats", "squad"]
    out = commands.out("answer", *options)
    assert str(run / "skipped.jsonl") in out
    metrics = load(run / "metrics.json")["metrics"]
    answers = load(run / "squad.json")
    assert answers.keys() == {"q1", "q2", "q3"}
    assert (answers["q1"], answers["q2"]) == ("1986", "Ada Brenn")
    assert metrics["squad_f1"] == pytest.approx((2 + (answers["q3"] == "")) / 3)
    assert (metrics["squad_n"], metrics["squad_unanswerable_n"]) == (3, 1)
    for prediction in load(run / "predictions.json")["predictions"]:
        (short,) = prediction["short_answers"]
        text = own_data.CONTEXT[max(short["start_char"], 0) : max(short["end_char"], 0)]
        assert text == answers[prediction["example_id"]]
    gold = ["eval", "--gold_path", squad, "--predictions_path", run / "predictions.json"]
    assert json.loads(commands.out(*gold)) == pytest.approx(metrics)
    assert "annotators" not in commands.err  # of which text has none


@pytest.mark.slow
def test_all_blocks_of_a_page_are_read_as_nq_ask_reads_them(
    tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    others = [f"The old mill number {i} stands on the river." for i in range(59)]
    text = "\n\n".join([*others, own_data.CONTEXT])
    question, model = "When was the lighthouse automated?", ["--model", "small"]
    Path("page.txt").write_text(text, newline="")
    lines = [{"question": question, "context": text}, {"question": question, "page": "page"}]
    write_lines(Path("own.jsonl"), [line | {"answer": "1986"} for line in lines])
    asked = commands.json("ask", question, "page.txt", *model)
    answer = ["answer", *model, "--data", "own.jsonl", "--pages", ".", "--formats", "squad"]
    reading = {
        "default": [],
        "beam": ["--runner", "FnApiRunner", "--profile", "buckets+openvino"],
        "limited": ["--set", "max_contexts=48"],
    }
    for name, options in reading.items():
        figures = commands.json(*answer, "--no-track", "--output", name, *options)
        n_unread = (len(others) + 2 - 47 if name == "limited" else 0) * len(lines)
        assert figures["unread_blocks"] == n_unread
        answers = set(load(Path(name, "squad.json")).values())
        assert (answers == {asked["answer"]} == {"1986"}) == (name != "limited")


@pytest.mark.slow
def test_questions_with_pages(tiny_model: Path, tmp_path: Path, commands: Commands) -> None:
    """No question names one of the pages."""
    pages, run = tmp_path / "pages", tmp_path / "run"
    pages.mkdir()
    (pages / "tower.html").write_text(HTML, newline="")
    (pages / "light.txt").write_text(own_data.CONTEXT, newline="")
    (pages / "rain.txt").write_text("It rains.")
    rows = ["When was it built?;tower;1889", "When was it lit?;light.txt;never", "Who?;moon;"]
    data = tmp_path / "own.csv"
    data.write_text("\ufeffQuestion;Page;Answer\r\n" + "\r\n".join(rows), newline="")
    paths = ["--data", data, "--pages", pages, "--model", tiny_model, "--output", run]
    figures = commands.json("answer", *paths, "--formats", "nbest,squad", "--no-track")
    assert commands.err.count("nq: warning: no question names 1 of the 3 pages") == 1  # under auto
    assert (figures["examples"], figures["dead_letters"], figures["text_only"]) == (2, 1, 1)
    assert (figures["metrics"]["squad_n"], figures["metrics"]["long-answer-n"]) == (2, 1)
    assert load(run / "job.json")["job"]["page_column"] == "page"
    first, second = (json.loads(line) for line in (run / "nbest.jsonl").read_bytes().splitlines())
    assert (first["example_id"], second["example_id"]) == ("own.csv:2", "own.csv:3")
    longs = [answer["long_answer"] for answer in first["answers"] if answer["long_answer"]]
    places = {HTML[long["start_char"] : long["end_char"]] for long in longs}
    assert places == {PARAGRAPH}
    evaluation = ["eval", "--gold_path", data, "--pages", pages]
    printed = commands.out(*evaluation, "--predictions_path", run / "predictions.json")
    assert json.loads(printed) == pytest.approx(figures["metrics"])
    moved = pages.rename(tmp_path / "moved")
    error = commands.error("report", run)
    assert str(pages) in error and "--pages" in error
    assert commands.json("report", run, "--pages", moved)["questions"] == 2
    moved.rename(pages)
    (pages / "rain.txt").write_text("It snows.")
    error = commands.error("report", run)
    assert str(pages) in error and "--pages" in error
