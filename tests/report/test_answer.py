"""Replies as a person reads them, and as JSON."""

from __future__ import annotations

import json

from nq.formats.pages import page_from_text
from nq.records import Alternative, Prediction, Span, YesNo
from nq.report.reply import MAX_LINES, Reply, describe, show

PAGE = page_from_text(
    "Ada Brenn (1840) designed the tower.\n\nTom Hale was its keeper.\n\nIt's old."
)
FIRST, SECOND, THIRD = (c.span for c in PAGE.example.candidates)
ADA, TOM = Span(1, 3), Span(SECOND.start + 1, SECOND.start + 3)
WEIGHED = (
    Alternative(FIRST, (ADA,), YesNo.NONE, 0.9, 0.834),
    Alternative(SECOND, (TOM,), YesNo.NONE, 0.07, 0.06),
    Alternative(THIRD, (), YesNo.YES, 0.02, 0.001),
)


def test_long_and_short_answer() -> None:
    reply = Reply(Prediction(0, FIRST, 0.9, (ADA,), 0.834), WEIGHED)
    assert show(PAGE, reply, top=3) == (
        "Ada Brenn (83%)\n\n"
        "found in (90%):\n"
        "  »Ada Brenn« (1840) designed the tower.\n\n"
        "runners-up:\n"
        "    6%  Tom Hale · Tom Hale was its keeper.\n"
        "   <1%  yes · It's old."
    )
    assert "\033[1mAda Brenn\033[0m (1840)" in show(PAGE, reply, 3, ("\033[1m", "\033[0m"))


def test_top() -> None:
    reply = Reply(Prediction(0, FIRST, 0.9, (ADA,), 0.834), WEIGHED)
    assert [len(reply.runners_up(n)) for n in range(4)] == [0, 1, 2, 2]
    assert "runners-up" not in show(PAGE, reply, top=0)


def test_long_answer_only() -> None:
    shown = show(PAGE, Reply(Prediction(0, SECOND, 0.9), WEIGHED), top=1)
    assert shown.startswith("no short answer\n\nfound in (7%):\n  Tom Hale was its keeper.\n\n")
    assert shown.endswith("83%  Ada Brenn · Ada Brenn (1840) designed the tower.")


def test_yes_no_and_short_answers_without_a_long_one() -> None:
    first = WEIGHED[2:]
    assert show(PAGE, Reply(Prediction(0, yes_no=YesNo.YES), first), 3) == "yes (<1%)"
    assert show(PAGE, Reply(Prediction(0, shorts=(ADA,)), WEIGHED), 0) == "Ada Brenn (83%)"


def test_no_answer() -> None:
    shown = show(PAGE, Reply(Prediction(0), WEIGHED), top=1)
    assert shown.startswith("no answer\n\nbest guesses:\n   83%  Ada Brenn")
    assert show(PAGE, Reply(Prediction(0), ()), top=3) == "no answer"


def test_of_a_long_block_the_lines_around_the_answer() -> None:
    page = page_from_text(" ".join(f"word{i}" for i in range(1000)))
    block = page.example.candidates[0].span
    for at in (1, 500, 999):
        shown = show(page, Reply(Prediction(0, block, 0.9, (Span(at, at + 1),), 0.8), ()), 0)
        assert f"»word{at - 1}«" in shown
        assert len(shown.split("\n")) <= MAX_LINES + 5
        assert shown.endswith("…") == (at < 999)
    assert "word0 " in show(page, Reply(Prediction(0, block, 0.9), ()), 0)


def test_json() -> None:
    reply = Reply(Prediction(0, FIRST, 0.9, (ADA,), 0.834), WEIGHED)
    found = json.loads(json.dumps(describe(PAGE, "who", reply, 1)))
    assert found["question"] == "who"
    assert (found["answer"], found["short_probability"]) == ("Ada Brenn", 0.834)
    assert found["short_answers"] == [{"text": "Ada Brenn", "start_token": 1, "end_token": 3}]
    assert found["long_answer"]["text"] == "Ada Brenn (1840) designed the tower."
    assert [other["answer"] for other in found["runners_up"]] == ["Tom Hale"]
    nothing = describe(PAGE, "who", Reply(Prediction(0), ()), 1)
    assert (nothing["answer"], nothing["long_answer"], nothing["runners_up"]) == (None, None, [])
