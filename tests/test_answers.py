"""Tests answers in words: as an object, as text for a terminal, and as JSON."""

import json
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from nq.answers import Answer, Page
from nq.commands.ask import MAX_LINES, render
from nq.config import WindowConfig
from nq.formats.documents import page_from_text
from nq.postprocess.decision import RankedPrediction
from nq.reader import make_answer
from nq.records import Alternative, Prediction, Span, YesNo

PAGE = page_from_text(
    "Ada Brenn (1840) designed the tower.\n\nTom Hale was its keeper.\n\nIt's old."
)
FIRST, SECOND, THIRD = (c.span for c in PAGE.example.candidates)
ADA, TOM = Span(1, 3), Span(SECOND.start + 1, SECOND.start + 3)
N_BEST = (
    Alternative(FIRST, (ADA,), YesNo.NONE, 0.9, 0.834),
    Alternative(SECOND, (TOM,), YesNo.NONE, 0.07, 0.06),
    Alternative(THIRD, (), YesNo.YES, 0.02, 0.001),
)
BOTH = Prediction(0, FIRST, 0.9, (ADA,), 0.834)


def make(
    prediction: Prediction,
    n_best: Sequence[Alternative] = N_BEST,
    top: int = 3,
    page: Page = PAGE,
) -> Answer:
    ranking: Any = SimpleNamespace(alternatives=lambda limit: tuple(n_best))
    ranked = RankedPrediction(prediction, ranking)
    return make_answer("who", page, ranked, top, WindowConfig())


def test_control_characters_of_a_page_are_visible() -> None:
    page = replace(
        PAGE, spelling=["\x1b[2J" + s if s.startswith("Ada") else s for s in PAGE.spelling]
    )
    text = render(make(BOTH, page=page))
    assert text.startswith("\\u001b[2JAda Brenn (83%)\n\n")
    assert "  »\\u001b[2JAda Brenn« (1840) designed" in text
    assert "\x1b[2J" not in text


def test_long_and_short_answer() -> None:
    answer = make(BOTH)
    assert render(answer) == (
        "Ada Brenn (83%)\n\n"
        "found in (90%):\n"
        "  »Ada Brenn« (1840) designed the tower.\n\n"
        "runners-up:\n"
        "    6%  Tom Hale · Tom Hale was its keeper.\n"
        "   <1%  yes · It's old."
    )
    assert "\033[1mAda Brenn\033[0m (1840)" in render(answer, ("\033[1m", "\033[0m"))
    assert (answer.short, answer.text, str(answer)) == ("Ada Brenn",) * 3
    assert answer.long == "Ada Brenn (1840) designed the tower."
    assert (answer.long_probability, answer.short_probability) == (0.9, 0.834)
    assert (answer.long_span, answer.short_spans, answer.yes_no) == (FIRST, (ADA,), YesNo.NONE)
    assert answer.answered


def test_a_question_for_yes_or_no_is_answered_by_its_passage() -> None:
    answer = replace(make(Prediction(0, FIRST, 0.9)), asks_yes_no=True)
    for text in (str(answer), render(answer)):
        assert "Ada Brenn (1840) designed the tower." in text


ASKS = Alternative(FIRST, (), YesNo.YES, 0.97, 0.96, asks_yes_no=True)
WORDLESS = Alternative(SECOND, (), YesNo.NONE, 0.02, 0.001)


@pytest.mark.parametrize(
    ("prediction", "first", "text", "probabilities"),
    [
        (Prediction(0, FIRST, 0.9, (), 0.2), N_BEST[0], None, (0.9, None)),  # below a threshold
        (Prediction(0, None, 0.9, (ADA,), 0.834), N_BEST[0], "Ada Brenn", (None, None)),
        (Prediction(0, FIRST, 0.9, (), 0.8, YesNo.YES), ASKS, "yes", (0.97, 0.96)),
    ],
)
def test_what_is_not_answered_has_no_probability(
    prediction: Prediction, first: Alternative, text: str | None, probabilities: Any
) -> None:
    answer = make(prediction, (first, WORDLESS))
    assert answer.text == text
    assert (answer.long_probability, answer.short_probability) == probabilities
    assert answer.alternatives[-1].short_probability is None
    head, *_, last = render(answer).splitlines()
    assert ("%" in head) == ("probability" in repr(answer)) == (probabilities[1] is not None)
    assert last.strip() == "(no short answer) · Tom Hale was its keeper."


def test_of_a_long_block_the_lines_around_the_answer_are_shown() -> None:
    page = page_from_text(" ".join(f"word{i}" for i in range(1000)))
    block = page.example.candidates[0].span
    for at in (1, 500, 999):
        prediction = Prediction(0, block, 0.9, (Span(at, at + 1),), 0.8)
        text = render(make(prediction, (), 0, page))
        assert f"»word{at - 1}«" in text
        assert len(text.split("\n")) <= MAX_LINES + 5
        assert text.endswith("…") == (at < 999)
    assert "word0 " in render(make(Prediction(0, block, 0.9), (), 0, page))


@pytest.mark.parametrize(
    "text",
    [
        "He met \U000f0000 Ada Brenn, \U000f0001 there.",
        "He  met\n Ada   Brenn's  friend",
    ],
)
def test_the_place_of_a_short_answer_in_the_text_of_the_long_one(text: str) -> None:
    page = page_from_text(text)
    tokens, (block,) = page.example.tokens, page.example.candidates
    short = Span(tokens.index("Ada"), tokens.index("Brenn") + 1)
    values = make(Prediction(0, block.span, 0.9, (short,), 0.8), page=page).to_dict()
    (answer,), long = values["short_answers"], values["long_answer"]["text"]
    assert long[answer["start_in_long"] : answer["end_in_long"]] == "Ada Brenn"


def test_json() -> None:
    values = json.loads(json.dumps(make(BOTH, top=1).to_dict()))
    assert values["question"] == "who"
    assert (values["answer"], values["short_probability"]) == ("Ada Brenn", 0.834)
    assert values["short_answers"] == [
        {
            **{"text": "Ada Brenn", "start_token": 1, "end_token": 3},
            **{"start_char": 0, "end_char": 9, "block": 1, "page_number": None},
            **{"start_in_long": 0, "end_in_long": 9},
        }
    ]
    assert values["long_answer"]["text"] == "Ada Brenn (1840) designed the tower."
    assert [other["answer"] for other in values["runners_up"]] == ["Tom Hale"]
    (outside,) = make(Prediction(0, SECOND, 0.9, (ADA,), 0.8)).to_dict()["short_answers"]
    assert (outside["start_in_long"], outside["end_in_long"]) == (-1, -1)
    nothing = make(Prediction(0), (), 1).to_dict()
    assert (nothing["answer"], nothing["long_answer"], nothing["runners_up"]) == (None, None, [])
