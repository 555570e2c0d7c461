"""The page of a report in a real browser: filters, links, keys, hostile text, many questions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import markupsafe
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.report.page import MAX_PAGE_BYTES, script_json
from tests.chromium import Browser, browser, needs_chromium
from tests.report.example_questions import HOSTILE, hostile, questions, write_page

MANY, LAST_WRONG = 20_000, 19_996
READY = "document.documentElement.dataset.ready"
SHOWN = "[...document.querySelectorAll('#list a')].map(a => decodeURIComponent(a.hash.slice(1)))"
COUNT = "document.getElementById('count').textContent"
DETAIL = "document.getElementById('detail').innerText"

in_browser = [pytest.mark.browser, pytest.mark.slow, needs_chromium]


@given(st.text(), st.dictionaries(st.text(), st.text() | st.integers(-(2**53), 2**53)))
def test_json_in_a_script_is_read_back_and_cannot_end_it(text: str, values: dict[str, str]) -> None:
    encoded = script_json([text, values])
    assert json.loads(encoded) == [text, values]
    assert not re.search(rb"[<>&]|\xe2\x80[\xa8\xa9]", encoded)


def test_the_page_has_no_markup_of_the_data_and_no_address(tmp_path: Path) -> None:
    write_page(tmp_path / "page.html", [hostile(1), *questions(5)], name=HOSTILE)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert len(re.findall(r"<script[ >]", text)) == len(re.findall("</script>", text)) == 4
    text = re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.DOTALL)
    text = text.replace(str(markupsafe.escape(HOSTILE)), "").replace("http-equiv", "")
    for outside in ("http", " src=", "@import", "url(", "<link", "<img", "innerHTML", "{{"):
        assert outside not in text, outside


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as running:
        yield running


@pytest.fixture
def tab(chromium: Browser) -> Iterator[Browser]:
    """A browser whose pages may neither log an error nor request anything but files."""
    chromium.urls.clear()
    chromium.messages.clear()
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
    assert write_page(path, questions(100)).paths == (path,)
    return path


class TestPage:
    pytestmark = in_browser

    def test_it_opens_alone(self, tab: Browser, page: Path) -> None:
        open_page(tab, page)
        assert tab.urls == [page.as_uri()]
        assert tab.run(COUNT) == "100 questions"
        chips = tab.run("[...document.querySelectorAll('#outcomes b')].map(b => b.textContent)")
        assert chips == ["20"] * 5
        assert "who is number 0" in tab.run(DETAIL)

    @pytest.mark.parametrize("width", [320, 1280])
    def test_it_never_scrolls_sideways(self, tab: Browser, page: Path, width: int) -> None:
        tab.size(width)
        open_page(tab, page)
        tab.run("document.querySelectorAll('details').forEach(d => d.open = true)")
        wide = "document.documentElement.scrollWidth"
        assert tab.run(wide) == width
        tab.run("document.querySelector('#list a').click()")
        tab.wait_for(f"{DETAIL}.includes('N-best list')")
        assert tab.run(wide) == width
        assert tab.run("document.querySelector('#detail .passage').clientWidth") > 250

    def test_filters_searches_and_sorts(self, tab: Browser, page: Path) -> None:
        open_page(tab, page)
        tab.run("document.querySelectorAll('#outcomes button')[1].click()")
        wrong = tab.run(SHOWN)
        assert wrong == [str(n) for n in range(1, 100, 5)]
        tab.run(
            "const low = document.getElementById('low'); low.value = 30; "
            "low.dispatchEvent(new Event('input'))"
        )
        # the answer is the short one, whose score is half of the number in percent
        assert tab.run(SHOWN) == [n for n in wrong if int(n) / 2 >= 30]
        tab.run("document.getElementById('reset').click()")
        assert tab.run(COUNT) == "100 questions"
        choose = (
            "const box = [...document.querySelectorAll('#traits select')][0]; "
            "box.value = [...box.options].find(o => o.text.startsWith('none')).value; "
            "box.dispatchEvent(new Event('change'))"
        )
        tab.run(choose)
        assert tab.run(COUNT) == "40 of 100 questions"  # extra and null
        tab.run("document.getElementById('reset').click()")
        search = (
            "const words = document.getElementById('search'); words.value = 'NUMBER 7 who'; "
            "words.dispatchEvent(new Event('input'))"
        )
        tab.run(search)
        assert tab.run(SHOWN) == [str(n) for n in range(100) if "7" in str(n)]
        tab.run("document.getElementById('reset').click()")
        sort = (
            "const sort = document.getElementById('sort'); sort.value = 'score, highest first'; "
            "sort.dispatchEvent(new Event('change'))"
        )
        tab.run(sort)
        assert tab.run(SHOWN)[:3] == ["98", "96", "95"]  # 97 and 99 have no answer

    def test_a_link_opens_its_question(self, tab: Browser, page: Path) -> None:
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
        open_page(tab, page, "#nothing")
        assert tab.run(COUNT) == "100 questions"

    def test_keys(self, tab: Browser, page: Path) -> None:
        open_page(tab, page)
        for key, expected in (("j", "#0"), ("j", "#1"), ("j", "#2"), ("k", "#1")):
            tab.press(key)
            assert tab.run("location.hash") == expected
        tab.wait_for(f"{DETAIL}.includes('who is number 1')")
        blocks = "document.querySelectorAll('#passages .passage').length"
        assert tab.run(blocks) == 2
        tab.press("m")
        tab.wait_for(f"{blocks} === 3")
        tab.press("/")
        assert tab.run("document.activeElement.id") == "search"
        tab.press("j")
        assert tab.run("location.hash") == "#1"  # a letter of the search
        tab.press("Escape")
        assert tab.run("document.activeElement.id") == ""

    def test_a_phone_shows_the_list_or_a_question(self, tab: Browser, page: Path) -> None:
        tab.size(390)
        open_page(tab, page)
        visible = "['.list-side', '#detail'].map(s => document.querySelector(s).offsetHeight > 0)"
        assert tab.run(visible) == [True, False]
        tab.run("document.querySelectorAll('#list a')[3].click()")
        tab.wait_for(f"{DETAIL}.includes('who is number 3')")
        assert tab.run(visible) == [False, True]
        tab.run("document.querySelector('.back').click()")
        assert tab.run(visible) == [True, False]

    def test_colors_have_contrast(self, tab: Browser, page: Path) -> None:
        """Text and its background have a ratio of 4.5 or more (WCAG 2.1, 1.4.3)."""
        for dark in (False, True):
            tab.size(1280, dark=dark)
            open_page(tab, page, "#1")
            tab.wait_for(f"{DETAIL}.includes('N-best list')")
            assert tab.run(CONTRAST_SCRIPT) == []

    def test_text_of_the_data_is_only_text(self, tab: Browser, tmp_path: Path) -> None:
        path = tmp_path / "a page #1 %41.html"
        write_page(path, [hostile(1), *questions(5)], name=HOSTILE)
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

    def test_changed_answers_come_first(self, tab: Browser, tmp_path: Path) -> None:
        both = list(questions(70, with_other=True))
        same = [replace(question, other=question.label) for question in both[:60]]
        path = tmp_path / "page.html"
        write_page(path, [*same, *both[60:]])
        open_page(tab, path)
        assert tab.run(SHOWN)[:10] == [str(n) for n in range(60, 70)]
        assert "other run" in tab.run("document.querySelector('#list a').innerText")
        chips = "[...document.querySelectorAll('#changes button')].map(b => b.textContent)"
        assert tab.run(chips) == ["changed10", "better4", "worse4"]
        tab.run("document.querySelectorAll('#changes button')[0].click()")
        assert tab.run(COUNT) == "10 of 70 questions"
        assert tab.run("document.querySelectorAll('.answers .other').length") == 1


CONTRAST_SCRIPT = """(() => {
  const parse = (c) => (c.match(/[\\d.]+/g) || []).map(Number);
  const light = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => { v /= 255;
    return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (e) => { for (; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] === 1) return c; } return [255, 255, 255]; };
  const poor = new Set();
  for (const e of document.querySelectorAll("body *")) {
    const text = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!text || e.closest("svg, script, noscript") || !e.getClientRects().length) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))].sort();
    const ratio = (b + 0.05) / (a + 0.05);
    if (ratio < 4.5) poor.add(`${e.tagName}.${e.className}: ${ratio.toFixed(2)}`);
  }
  return [...poor];
})()"""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of 20,000 questions, whose details are in files beside it."""
    path = tmp_path_factory.mktemp("many") / "page.html"
    report = write_page(path, questions(MANY), n_questions=MANY)
    assert report.paths == (path, path.with_name("page-data"))
    return path


@pytest.mark.slow
def test_the_details_of_many_questions_are_in_files(many: Path) -> None:
    parts = sorted(many.with_name("page-data").iterdir())
    assert [part.name for part in parts] == [f"{n:05}.js" for n in range(len(parts))]
    assert sum(part.stat().st_size for part in parts) > MAX_PAGE_BYTES
    write_page(many.with_name("few.html"), questions(3))
    assert not many.with_name("few-data").exists()


class TestManyQuestions:
    pytestmark = in_browser

    def test_they_open(self, tab: Browser, many: Path) -> None:
        open_page(tab, many, f"#{LAST_WRONG}")
        tab.wait_for(f"{DETAIL}.includes('who is number {LAST_WRONG}')")
        assert tab.run(COUNT) == "20,000 questions"
        assert "b9 b10" in tab.run("document.getElementById('passages').innerText")
        assert len(tab.urls) == 2
        assert tab.run("document.querySelector('#list [aria-current]').hash") == f"#{LAST_WRONG}"
        assert len(tab.run(SHOWN)) < 100
        tab.run("document.querySelector('#list .gap button').click()")
        assert tab.run(SHOWN)[0] == str(LAST_WRONG - 3 - 60)
        for number in (0, 9_999):
            tab.run(f"location.hash = '#{number}'")
            tab.wait_for(f"{DETAIL}.includes('who is number {number}')")

    def test_a_missing_part_is_named(self, chromium: Browser, many: Path) -> None:
        part = many.with_name("page-data") / "00000.js"
        hidden = part.rename(part.with_suffix(".hidden"))
        try:
            open_page(chromium, many, "#0")
            chromium.wait_for(f"{DETAIL}.includes('page-data/00000.js is missing')")
        finally:
            hidden.rename(part)
