"""HTML -> the words, tags and candidates that NQ would have made of it.

``<p>It <b>rains</b>.</p>`` becomes ``<P> It rains . </P>``, a candidate. Tags of blocks that
NQ knows stay as tokens, other blocks part words, inline tags leave no trace. Dropped is what
a browser does not show, and what leads around the page: navigation, footers, references.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lxml import etree

from nq.formats.words import LAYOUT, words
from nq.records import Candidate, Example, Page, Span

HEADINGS = tuple(f"h{n}" for n in range(1, 7))
BLOCKS = ("p", "table", "tr", "ul", "ol", "dl", "li", "dd", "dt")  # these are candidates
KEPT = {tag: tag.capitalize() for tag in (*BLOCKS, "td", "th", *HEADINGS)}
INLINE = frozenset(
    """
    a abbr acronym b bdi bdo big cite code data del dfn em font i ins kbd label mark nobr q
    rb ruby s samp small span strike strong sub sup time tt u var wbr
    """.split()  # noqa: SIM905
)
SOFT_BREAKS = ("br", "img")
DROPPED = frozenset(
    """
    annotation audio canvas datalist footer iframe math nav noembed noframes noscript object rp rt
    script select style svg template textarea title video
    """.split()  # noqa: SIM905
)
_NOISE_ROLES = ("navigation", "contentinfo", "search")
_NOISE_CLASSES = frozenset(  # of MediaWiki; blocks that NQ has no candidates for either
    """
    catlinks mw-editsection mw-jump-link navbox printfooter reference references reflist
    toc
    """.split()  # noqa: SIM905
)
_NOT_SHOWN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)


class Writer:
    """Writes a page down token by token; also the target that lxml's parser reports to.

    Args:
        loose: make paragraphs of the text that stands in no block.
    """

    def __init__(self, loose: bool = False) -> None:
        self.loose, self.title = loose, ""
        self.tokens: list[str] = []
        self.is_html: list[bool] = []
        self.spelling: list[str] = []
        self.candidates: list[Candidate | None] = []  # None while open, or without a word
        self.words_inside = self.words_outside = 0
        self._text: list[str] = []
        self._open: list[tuple[int, int]] = []  # candidates: first token, index
        self._dropped: list[str] = []
        self._headings = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """An opening tag."""
        if self._dropped or _is_dropped(tag, attributes):
            self._dropped.append(tag)
        elif tag in SOFT_BREAKS:
            self._text.append(" ")
        elif tag not in INLINE:
            self._flush()
            self._headings += tag in HEADINGS
            if tag in KEPT:
                self._open_block(tag)

    def end(self, tag: str) -> None:
        """A closing tag; the parser closes what the page forgot to."""
        if self._dropped:
            self._dropped.pop()
        elif tag not in INLINE and tag not in SOFT_BREAKS:
            self._flush()
            self._headings -= tag in HEADINGS
            if tag in KEPT:
                self._close_block(tag)

    def data(self, text: str) -> None:
        """Text; it may come in pieces."""
        if not self._dropped:
            self._text.append(text)
        elif self._dropped == ["title"] and len(self.title) < 200:
            self.title = " ".join((self.title + text).split())

    def close(self) -> Writer:
        """The end of the page."""
        self._flush()
        return self

    def page(self) -> Page:
        """What was written, as a page without a question."""
        candidates = [c for c in self.candidates if c]
        example = Example(0, "", self.tokens, self.is_html, candidates, title=self.title)
        return Page(example, self.spelling)

    def _token(self, token: str, spelled: str, is_html: bool) -> None:
        self.tokens.append(token)
        self.is_html.append(is_html)
        self.spelling.append(spelled)

    def _tag(self, tag: str) -> None:
        self._token(tag, LAYOUT.get(tag, ""), is_html=True)

    def _open_block(self, tag: str) -> None:
        if tag in BLOCKS:
            self._open.append((len(self.tokens), len(self.candidates)))
            self.candidates.append(None)
        self._tag(f"<{KEPT[tag]}>")

    def _close_block(self, tag: str) -> None:
        self._tag(f"</{KEPT[tag]}>")
        if tag in BLOCKS:
            start, index = self._open.pop()
            if not all(self.is_html[start:]):
                span = Span(start, len(self.tokens))
                self.candidates[index] = Candidate(span, top_level=not self._open)

    def _flush(self) -> None:
        """Writes the words gathered since the last tag that parts words."""
        text, self._text = "".join(self._text), []
        found = list(words(text))
        if not found:
            return
        outside = not self._open and not self._headings
        self.words_inside += len(found) * bool(self._open)
        self.words_outside += len(found) * outside
        if self.loose and outside:
            self._open_block("p")
        for word, spelled in found:
            self._token(word, spelled, is_html=False)
        self.spelling[-1] = found[-1][1].rstrip(" ") + " "
        if self.loose and outside:
            self._close_block("p")


def _is_dropped(tag: str, attributes: Mapping[str, str]) -> bool:
    """Whether a browser would not show it, or it is not of the page's text."""
    return (
        tag in DROPPED
        or "hidden" in attributes
        or attributes.get("aria-hidden") == "true"
        or attributes.get("role") in _NOISE_ROLES
        or not _NOISE_CLASSES.isdisjoint(attributes.get("class", "").lower().split())
        or bool(_NOT_SHOWN.search(attributes.get("style", "")))
    )


def from_html(text: str) -> Page:
    """The page that ``text`` marks up; broken markup is mended as browsers do.

    Where most words stand in no block (a page of bare ``<div>``), these become paragraphs.

    Raises:
        ValueError: elements are nested so deep that the parser gives up.
    """
    found = _written(text, loose=False)
    if found.words_outside > found.words_inside:
        found = _written(text, loose=True)
    return found.page()


def _written(text: str, loose: bool) -> Writer:
    parser: Any = etree.HTMLParser(
        target=Writer(loose), encoding="utf-8", huge_tree=True, remove_pis=True
    )
    parser.feed(text.encode("utf-8", "replace"))
    written: Writer = parser.close()
    deep = [e for e in parser.error_log if e.type_name == "ERR_RESOURCE_LIMIT"]
    if deep:
        raise ValueError(f"the page cannot be read as HTML: {deep[0].message}")
    return written
