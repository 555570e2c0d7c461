"""The page of a report in a real browser: filters, links, keys, hostile text, many questions."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nq.evaluation.text_match import TOP
from tests.report.examples import (
    FIRST,
    HOSTILE,
    hostile,
    predicted,
    question,
    questions,
    write_example_page,
)
from tests.support.chromium import Browser, needs_chromium

MANY, LAST_WRONG = 20_000, 19_996
READY = "document.documentElement.dataset.ready"
SHOWN = "[...document.querySelectorAll('#list a')].map(a => decodeURIComponent(a.hash.slice(1)))"
COUNT = "document.getElementById('count').textContent"
RESET = "document.getElementById('reset').click()"
DETAIL = "document.getElementById('detail').innerText"

pytestmark = [pytest.mark.browser, pytest.mark.slow, needs_chromium]


@pytest.fixture
def tab(chromium: Browser) -> Iterator[Browser]:
    """A browser whose pages may neither log an error nor request anything but files."""
    chromium.new_tab()
    chromium.size(1280)
    yield chromium
    assert chromium.messages == []
    assert {url.split(":")[0] for url in chromium.urls} <= {"file"}


def open_page(tab: Browser, path: Path, fragment: str = "") -> None:
    tab.open("about:blank")
    tab.urls.clear()
    tab.open(path.absolute().as_uri() + fragment)
    tab.wait_for(READY)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of 100 questions: 20 of each outcome, with probabilities from 0 to 0.99."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    write_example_page(path, questions(100))
    return path


@pytest.mark.parametrize("width", [320, 1280])
def test_it_never_scrolls_sideways(tab: Browser, page: Path, width: int) -> None:
    tab.size(width)
    open_page(tab, page)
    tab.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    wide = "document.documentElement.scrollWidth"
    assert tab.run(wide) == width
    tab.run("document.querySelector('#list a').click()")
    tab.wait_for(f"{DETAIL}.includes('N-best list')")
    assert tab.run(wide) == width
    assert tab.run("document.querySelector('#detail .passage').clientWidth") > 250


def fill_in(tab: Browser, selector: str, value: object, event: str = "input") -> None:
    """Sets the value of a control as a person does."""
    tab.run(
        f"{{ const control = document.querySelector('{selector}'); "
        f"control.value = {value!r}; control.dispatchEvent(new Event('{event}')); }} 1"
    )


def test_filters_searches_and_sorts(tab: Browser, page: Path) -> None:
    open_page(tab, page)
    counts = "[...document.querySelectorAll('#outcomes button b')].map(b => b.textContent)"
    assert tab.run(counts) == ["20", "0", "20", "20", "20", "20"]
    tab.run("document.querySelectorAll('#outcomes button')[2].click()")
    wrong = tab.run(SHOWN)
    assert wrong == [str(n) for n in range(1, 100, 5)]
    fill_in(tab, "#low", 30)
    # the answer is the short one, whose score is half of the number in percent
    assert tab.run(SHOWN) == [n for n in wrong if int(n) / 2 >= 30]
    tab.run(RESET)
    assert tab.run(COUNT) == "100 questions"
    none = "[...document.querySelectorAll('#traits option')].find(o => o.text.startsWith('none'))"
    fill_in(tab, "#traits select", tab.run(f"{none}.value"), "change")
    assert tab.run(COUNT) == "40 of 100 questions"  # extra and null
    tab.run(RESET)
    fill_in(tab, "#search", "NUMBER 7 who")
    assert tab.run(SHOWN) == [str(n) for n in range(100) if "7" in str(n)]
    tab.run(RESET)
    fill_in(tab, "#sort", "score, highest first", "change")
    assert tab.run(SHOWN)[:3] == ["98", "96", "95"]  # 97 and 99 have no answer


def test_a_question_has_the_same_mark_in_the_list_and_beside_it(
    tab: Browser, tmp_path: Path
) -> None:
    """A passage for a question without an answer, and the words of gold at another place."""
    extra, wrong = question(3, "extra"), question(1, "wrong")
    passage = replace(
        extra, prediction=predicted(FIRST), example=replace(extra.example, answers=())
    )
    words = replace(wrong, example=replace(wrong.example, answers=("a1 a2",)))
    write_example_page(tmp_path / "page.html", [passage, words])
    for number, outcomes in ((3, ["extra", "extra", "null"]), (1, ["right", "wrong", "wrong"])):
        open_page(tab, tmp_path / "page.html", f"#{number}")
        tab.wait_for(f"{DETAIL}.includes('who is number {number}')")
        for kind, outcome in enumerate(outcomes):
            fill_in(tab, "#kind", str(kind), "change")
            for place in ("#list [aria-current]", "#detail .verdicts"):
                marks = f"[...document.querySelectorAll('{place} > * .mark, {place} > .mark')]"
                assert tab.run(f"{marks}.map(m => m.title)") == [outcome], (place, kind)
            chips = tab.run("[...document.querySelectorAll('#outcomes b')].map(b => b.innerText)")
            assert sum(map(int, chips)) == 2


def test_a_link_opens_its_question(tab: Browser, page: Path) -> None:
    open_page(tab, page, "#41")
    tab.wait_for(f"{DETAIL}.includes('who is number 41')")
    marks = tab.run(
        "[...document.querySelectorAll('#passages mark')].map(m => [m.className, m.innerText])"
    )
    assert marks == [["p", "a1 a2"], ["g", "b9 b10"]]
    assert "data.jsonl, line 42" in tab.run(DETAIL)
    tab.run("location.hash = '#7'")
    tab.wait_for(f"{DETAIL}.includes('who is number 7')")
    tab.run("history.back()")
    tab.wait_for(f"{DETAIL}.includes('who is number 41')")
    tab.run("location.hash = '#44'")  # without an answer
    tab.wait_for(f"{DETAIL}.includes('who is number 44')")
    scores = "[...document.querySelectorAll('#detail tbody td.num')].map(cell => cell.innerText)"
    assert tab.run(scores) == ["", "", "20%", "40%"]
    open_page(tab, page, "#nothing")
    assert tab.run(COUNT) == "100 questions"


def test_text_of_the_data_is_only_text(tab: Browser, tmp_path: Path) -> None:
    path = tmp_path / "a page #1 %41.html"
    write_example_page(path, [hostile(1), *questions(5)], name=HOSTILE)
    open_page(tab, path)
    title = tab.run("document.title")
    tab.run("document.querySelector('#list a').click()")
    tab.wait_for(f"{DETAIL}.includes('N-best list')")
    tab.run("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert title.startswith("nq report · </script><script>document.title='broken'")
    assert tab.run("document.title") == title
    assert tab.run("document.querySelectorAll('img, b b, #list script').length") == 0
    shown = tab.run("document.querySelector('#detail h2').textContent")
    assert shown == HOSTILE
    assert "onerror=" in tab.run("document.querySelector('#passages').textContent")
    assert tab.run("document.querySelector('#list .ask').textContent") == HOSTILE[:300]
    assert tab.urls == [path.as_uri()]


def test_a_comparison_begins_with_what_changed(tab: Browser, tmp_path: Path) -> None:
    both = list(questions(70, with_other=True))
    same = [replace(question, other=question.prediction) for question in both[:60]]
    path = tmp_path / "page.html"
    write_example_page(path, [*same, *both[60:]], comparable="no: resumed")
    open_page(tab, path)
    assert tab.run(SHOWN)[:10] == [str(n) for n in range(60, 70)]
    assert "other run" in tab.run("document.querySelector('#list a').innerText")
    chips = "[...document.querySelectorAll('#changes button')].map(b => b.textContent)"
    assert tab.run(chips) == ["changed10", "better4", "worse4"]
    figures = "[...document.querySelectorAll('.figures li')].map(one => one.innerText)"
    assert "changed answers\n10\nof 70" in tab.run(figures)[0]
    section = "document.querySelector('main > section').id"
    assert tab.run(section) == "questions" and tab.run("window.scrollY") == 0
    assert not any("comparable" in text for text in tab.run(figures))
    rows = "[...document.querySelectorAll('#figures > .wide tbody tr')].map(one => one.innerText)"
    mine, remark, other = tab.run(rows)
    assert "runs/mine" in mine and "runs/other" in other
    assert remark == "speed not comparable: resumed"
    assert tab.run("document.getElementById('sort').value") == "changed first"
    for button in ("#changes button", ".figures .pick"):
        tab.run(f"document.querySelector('{button}').click()")
        assert tab.run(COUNT) == "10 of 70 questions"
        assert tab.run("document.querySelectorAll('.answers .other').length") == 1
        tab.run(RESET)
    write_example_page(path, questions(5), comparable="no: resumed")
    open_page(tab, path)
    assert not any("comparable" in text for text in tab.run(figures))
    line = tab.run("document.querySelector('#figures > p').innerText")
    assert line == "Speed not comparable: resumed."


def test_figures_stand_beside_the_questions_those_of_a_retriever_first(
    tab: Browser, tmp_path: Path
) -> None:
    scores = {"squad_exact_match": 0.375, "squad_f1": 0.5, "retrieval_all": 0.9}
    scores |= {f"retrieval_top_{k}": 0.1 + k / 200 for k in TOP}
    write_example_page(tmp_path / "page.html", questions(40), scores=scores)
    open_page(tab, tmp_path / "page.html")
    names = tab.run("[...document.querySelectorAll('.figures li')].map(one => one.innerText)")
    first = ["exact match\n0.375", "in the top 1\n0.105", "in the top 5\n0.125"]
    assert names[:5] == [*first, "in the top 20\n0.200", "micro-F1\n0.500"]
    assert sum("exact match" in name for name in names) == 1
    boxes = "['.list-side', '#detail', '.figures'].map(one => document.querySelector(one)"
    for width, n_beside in ((1280, 3), (1000, 2)):
        tab.size(width)
        places = tab.run(f"{boxes}.getBoundingClientRect()).map(one => [one.left, one.top])")
        assert [left for left, _ in places[:n_beside]] == sorted({left for left, _ in places})
        assert max(top for _, top in places) < 900 / 2


def test_many_questions_open(tab: Browser, tmp_path: Path) -> None:
    write_example_page(tmp_path / "page.html", questions(MANY))
    open_page(tab, tmp_path / "page.html", f"#{LAST_WRONG}")
    tab.wait_for(f"{DETAIL}.includes('who is number {LAST_WRONG}')")
    assert tab.run(COUNT) == "20,000 questions"
    assert "b9 b10" in tab.run("document.getElementById('passages').innerText")
    assert len(tab.urls) == 1
    assert tab.run("document.querySelector('#list [aria-current]').hash") == f"#{LAST_WRONG}"
    assert len(tab.run(SHOWN)) < 100
    tab.run("document.querySelector('#list .gap button').click()")
    assert tab.run(SHOWN)[0] == str(LAST_WRONG - 3 - 60)
    for number in (0, 9_999):
        tab.run(f"location.hash = '#{number}'")
        tab.wait_for(f"{DETAIL}.includes('who is number {number}')")
