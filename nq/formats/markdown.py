"""Markdown -> a page, whose words have their places in the Markdown text."""

from __future__ import annotations

import html
import re

from markdown_it import MarkdownIt
from markdown_it.token import Token

from nq.formats.fields import LIMITS
from nq.formats.html import SOFT_BREAKS, PageBuilder
from nq.formats.markup import UNKNOWN, WINDOW
from nq.records import Page

SUFFIXES = (".md", ".markdown")
MARKS = "\n\r|*_`[<&\\"
_LINE_END = re.compile(r"\r\n|[\n\r]")
_HTML_TAG = re.compile(r"<!--(?:(?!<!--).)*?-->|<[^<>]*>", re.DOTALL)


def parse_markdown(text: str) -> Page:
    """Returns the page of a Markdown text (CommonMark with tables)."""
    # A mark gives up to three tokens of markdown-it, which are larger than the page's.
    LIMITS.check(characters=len(text), tokens=3 * sum(map(text.count, MARKS)))
    builder = PageBuilder()
    starts = [0, *(match.end() for match in _LINE_END.finditer(text)), len(text)]
    place = 0
    for token in MarkdownIt("commonmark").enable("table").disable("text_join").parse(text):
        if token.map:
            place = max(place, starts[token.map[0]])
        if token.type == "inline":
            place = _add_inline(builder, token, text, place)
        elif token.content.strip():  # code, or HTML
            is_html = token.type == "html_block"
            content = html.unescape(_HTML_TAG.sub(" ", token.content)) if is_html else token.content
            builder.start("p", {})
            end = starts[token.map[1]] if token.map else place
            start = -1 if is_html else text.find(content, place, end)
            builder.data(content, start if start >= 0 else UNKNOWN)
            builder.end("p")
        elif token.tag and not token.hidden:
            if token.nesting >= 0:
                builder.start(token.tag, {})
            if token.nesting <= 0:
                builder.end(token.tag)
    return builder.close()


def _add_inline(builder: PageBuilder, token: Token, text: str, place: int) -> int:
    """Adds the text of a paragraph, a heading or a cell, and returns where it ends."""
    for child in token.children or ():
        is_break = child.type == "html_inline" and child.content[:3].lower() == "<br"
        if child.tag in SOFT_BREAKS or is_break:
            builder.data(" ")
        elif child.type in ("text", "text_special", "code_inline"):
            source = child.markup if child.type == "text_special" else child.content
            start = text.find(source, place, place + len(source) + WINDOW)
            escape = source.startswith("\\") and child.type == "text_special"
            builder.data(child.content, start + escape if start >= 0 else UNKNOWN)
            place = start + len(source) if start >= 0 else place
    return place
