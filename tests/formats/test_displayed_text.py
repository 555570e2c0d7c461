"""Tests that the blocks of random pages have the words that Chromium displays, once, in order."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from nq.answers import Page
from nq.formats.html import parse_html
from nq.formats.markdown import parse_markdown
from tests.support.chromium import Browser, needs_chromium

pytestmark = [needs_chromium, pytest.mark.browser, pytest.mark.slow]

browsing = settings(suppress_health_check=[HealthCheck.too_slow])  # Chromium takes the processor
Markup = st.SearchStrategy[str]
words = st.text(st.sampled_from("abcé“(.-'1\u00ad塔\ufb01"), min_size=1, max_size=5)
texts = words | st.sampled_from([" ", "\n", "&amp;", "caf&eacute; ", "&nbsp;", "<br>", " <img> "])
hidden = st.sampled_from(
    [
        *("<script>a</script>", "<style>a</style>", "<template>a</template>", "<!-- a -->"),
        "a<wbr>b",  # a line end beside <wbr> is no space in a browser, and is one here
        *("<span hidden>a</span>", '<b style="display: none">a</b>', "<noscript>a</noscript>"),
        *("<b popover>a</b>", "<i popover=manual hidden>a</i>", "<x-y popover=hint>a</x-y>"),
    ]
)
declarations = st.sampled_from(
    [
        *("display: none", "display: block", "DISPLAY:inline", "display: nonsense", "--a: none"),
        *("display: list-item", "display: flow-root", "display: contents", "display: table"),
        *("display: none !important", "display: block! important"),
        *("visibility: hidden", "visibility: visible", "visibility: collapse"),
        *("/* display: none */", "x: ';display: none;'", "y: url(;display:none)", "color: red", ""),
    ]
)
styles = st.lists(declarations, min_size=1, max_size=4).map("; ".join)


def several(inner: Markup) -> Markup:
    return st.lists(inner, max_size=4).map("".join)


def elements(names: str, inner: Markup) -> Markup:
    """Returns markup of one of the elements that are named, with others inside."""
    pairs = st.tuples(st.sampled_from(names.split()), several(inner))
    return pairs.map(lambda pair: "<{0}>{1}</{0}>".format(*pair))


def styled(names: str, inner: Markup) -> Markup:
    """Returns markup of one of the elements that are named, with a style and maybe hidden."""
    attributes = st.sampled_from(["", "", " hidden"])
    parts = st.tuples(st.sampled_from(names.split()), attributes, styles, several(inner))
    return parts.map(lambda part: '<{0}{1} style="{2}">{3}</{0}>'.format(*part))


phrases = st.recursive(
    texts | hidden,
    lambda inner: (
        elements("b i code span sub q kbd label x-y u mark small font object", inner)
        | styled("b span x-y", inner)
    ),
    max_leaves=4,
)


def flow(inner: Markup) -> Markup:
    """Returns markup of elements that are blocks."""
    rows = elements("tr", elements("td th", inner))
    definitions = elements("dt", phrases) | elements("dd", inner)
    summary = several(phrases).map(lambda text: f"<summary>{text}</summary>")
    details = st.tuples(summary, several(inner)).map("".join)
    return (
        elements("div section article aside blockquote figure address main header center", inner)
        | elements("p h1 h2 h3 pre figcaption legend fieldset", phrases)
        | elements("ul ol menu", elements("li", inner))
        | elements("dl", definitions)
        | elements("table", rows)
        | details.map(lambda inside: f"<details open>{inside}</details>")
        | styled("div section x-y", inner)
        | st.just("<dialog>a</dialog>")
    )


pages = several(st.recursive(phrases, flow, max_leaves=20))
markdown = st.lists(
    st.sampled_from(
        [
            *("# ", "- ", "1. ", "> ", "\n", "\n\n", "    ", "| a | b |\n|---|---|\n| ", "|"),
            *("`", "*"),
            *("[a](b 'c') ", " ![a](b) ", "**b** ", "word ", "&amp; ", "<b>c</b>", "\n\n<div>\n\n"),
            *("<i hidden>d</i>", "\n\n<p>x <i>y</i>\n\n", "\n\n<style>\nb {}\n</style>\n\n"),
            "---\n",
        ]
    ),
    max_size=25,
).map("".join)


@pytest.fixture(scope="module")
def tab(chromium: Browser) -> Browser:
    chromium.size(1280)
    return chromium


FLAT = """node => {
    const isObject = node.nodeName == "OBJECT";
    const copy = isObject ? document.createElement("x-object") : node.cloneNode(false);
    for (const one of node.childNodes)
        copy.appendChild(flat(one));
    return copy;
}"""
"""Copies a node; an object becomes what Chromium displays after it has found nothing to load."""


INVISIBLE = """() => {
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), invisible = [];
    while (texts.nextNode())
        if (getComputedStyle(texts.currentNode.parentNode).visibility != "visible")
            invisible.push(texts.currentNode);
    for (const text of invisible) text.data = "";
    for (const image of [...document.images]) image.replaceWith(" ");
    document.head.innerHTML = "<style>* { visibility: visible !important }</style>";
}"""
"""Removes invisible texts; of invisible blocks and images innerText does not have the space."""


def displayed(tab: Browser, markup: str) -> list[str]:
    """Returns the words of a page that Chromium displays."""
    text: str = tab.run(
        "document.open(), document.write('<!doctype html><body>'), document.close(),"
        f"flat = {FLAT}, page = new DOMParser().parseFromString({json.dumps(markup)}, 'text/html'),"
        f"document.body.replaceWith(flat(page.body)), ({INVISIBLE})(), document.body.innerText"
    )
    return text.split()


def words_of_blocks(page: Page) -> list[str]:
    spans = [c.span for c in page.example.candidates if c.top_level]
    tokens = [token for span in spans for token in range(span.start, span.end)]
    return "".join(" " if page.example.is_html[i] else page.spelling[i] for i in tokens).split()


@settings(browsing, max_examples=100)
@given(pages)
def test_the_blocks_of_a_page_have_what_is_displayed(tab: Browser, markup: str) -> None:
    markup = f"<!doctype html><body>{markup}"
    assert words_of_blocks(parse_html(markup)) == displayed(tab, markup)


@settings(browsing, max_examples=100)
@given(markdown)
def test_the_blocks_of_markdown_have_what_is_displayed(tab: Browser, text: str) -> None:
    rendered = MarkdownIt("commonmark").enable("table").render(text)
    shown = displayed(tab, f"<!doctype html><body>{rendered}")
    assert words_of_blocks(parse_markdown(text)) == shown
