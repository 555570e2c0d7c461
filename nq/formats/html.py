"""HTML -> the tokens and candidates that NQ would have for the page.

``<p>It <b>rains</b>.</p>`` becomes ``<P> It rains . </P>``, a candidate. Tags of the blocks that
NQ knows remain as tokens, other blocks separate words, inline tags disappear. Elements that a
browser does not display and those around the article (navigation, footers, references) are
dropped. Only a page that names MediaWiki as its generator has the position prior of Wikipedia.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate, islice
from typing import Any

import numpy as np
from lxml import etree

from nq.formats.fields import LIMITS
from nq.formats.markup import UNKNOWN, CharacterData
from nq.formats.words import BLOCKS, HEADINGS, TAG_SPELLINGS, located_words
from nq.records import Candidate, Example, Original, Page, Span

KEPT = {tag: tag.capitalize() for tag in (*BLOCKS, "td", "th", *HEADINGS)}
INLINE = frozenset(
    """
    a abbr acronym b bdi bdo big cite code data del dfn em font i ins kbd label mark nobr q
    rb ruby s samp small span strike strong sub sup time tt u var wbr
    """.split()  # noqa: SIM905
)
SOFT_BREAKS = ("br", "img")
MAX_TITLE_CHARS = 200
DROPPED = frozenset(
    """
    annotation audio canvas datalist footer iframe math nav noembed noframes noscript object rp rt
    script select style svg template textarea title video
    """.split()  # noqa: SIM905
)
_NOISE_ROLES = ("navigation", "contentinfo", "search")
_NOISE_CLASSES = frozenset(  # of MediaWiki; NQ has no candidates for these blocks either
    """
    catlinks mw-editsection mw-jump-link navbox printfooter reference references reflist toc
    """.split()  # noqa: SIM905
)
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)


TAG_PLACE = -1, -1
"""In place of a range of characters, for a tag."""


class PageBuilder:
    """Builds a page token by token; a target of lxml's HTML parser.

    With ``wrap_loose_text`` text outside all blocks becomes paragraphs. ``characters`` are those of
    the HTML; plain text has its place with it.
    """

    def __init__(
        self, wrap_loose_text: bool = False, characters: CharacterData | None = None
    ) -> None:
        self.wrap_loose_text, self.title, self.characters = wrap_loose_text, "", characters
        self.tokens: list[str] = []
        self.is_html: list[bool] = []
        self.spelling: list[str] = []
        self.chars: list[tuple[int, int]] = []
        self.is_wiki = False
        self.candidates: list[Candidate | None] = []  # None while open, or without a word
        self.n_words_inside = self.n_words_outside = 0
        self._text: list[tuple[str, int]] = []  # with its index in the page's characters
        self._open: list[tuple[int, int]] = []  # first token and index of each open candidate
        self._dropped: list[str] = []
        self._headings, self._last_word = 0, -1

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Adds an opening tag."""
        if attributes.get("name") == "generator":
            self.is_wiki |= attributes.get("content", "").startswith("MediaWiki")
        if self._dropped or self._is_noise(attributes) or _is_dropped(tag, attributes):
            self._dropped.append(tag)
        elif tag in SOFT_BREAKS:
            self._text.append((" ", UNKNOWN))
        elif tag not in INLINE:
            self._flush()
            self._headings += tag in HEADINGS
            if tag in KEPT:
                self._open_block(tag)

    def end(self, tag: str) -> None:
        """Adds a closing tag; lxml adds those that the page lacks."""
        if self._dropped:
            self._dropped.pop()
        elif tag not in INLINE and tag not in SOFT_BREAKS:
            self._flush()
            self._headings -= tag in HEADINGS
            if tag in KEPT:
                self._close_block(tag)

    def data(self, text: str, place: int = UNKNOWN) -> None:
        """Adds text; several calls may add the parts of one word.

        ``place`` is its index in plain text.
        """
        if self.characters:
            place = self.characters.find(text)
        if not self._dropped:
            self._text.append((text, place))
            if len(self.tokens) + len(self._text) > LIMITS.tokens:
                self._flush()  # so that a page beyond the limit is not read to its end
        elif self._dropped == ["title"] and len(self.title) < MAX_TITLE_CHARS:
            self.title = " ".join((self.title + text).split())

    def close(self, plain: str | None = None) -> Page:
        """Returns the page, without a question; ``plain`` is the user's text if it is plain."""
        self._flush()
        candidates = [c for c in self.candidates if c]
        original = Original(np.array(self.chars, np.int64).reshape(-1, 2), plain, self.spelling)
        example = Example(
            *(0, "", self.tokens, self.is_html, candidates),
            title=self.title,
            original=original,
            has_prior=self.is_wiki,
        )
        return Page(example, self.spelling)

    def _is_noise(self, attributes: Mapping[str, str]) -> bool:
        """Returns whether an element of a page of MediaWiki is not part of the article."""
        classes = attributes.get("class", "").lower().split() if self.is_wiki else ()
        return not _NOISE_CLASSES.isdisjoint(classes)

    def _add(self, token: str, spelling: str, place: tuple[int, int], is_html: bool) -> None:
        self.tokens.append(token)
        self.is_html.append(is_html)
        self.spelling.append(spelling)
        self.chars.append(place)

    def _open_block(self, tag: str) -> None:
        if tag in BLOCKS:
            self._open.append((len(self.tokens), len(self.candidates)))
            self.candidates.append(None)
        self._add(tag := f"<{KEPT[tag]}>", TAG_SPELLINGS.get(tag, ""), TAG_PLACE, is_html=True)

    def _close_block(self, tag: str) -> None:
        closing = f"</{KEPT[tag]}>"
        self._add(closing, TAG_SPELLINGS.get(closing, ""), TAG_PLACE, is_html=True)
        if tag in BLOCKS:
            start, index = self._open.pop()
            if self._last_word >= start:
                span = Span(start, len(self.tokens))
                self.candidates[index] = Candidate(span, top_level=not self._open)

    def _flush(self) -> None:
        """Adds the words of the text since the last tag that separates words."""
        LIMITS.check(tokens=len(self.tokens), candidates=len(self.candidates))
        texts, places = zip(*self._text, strict=True) if self._text else ((), ())
        self._text = []
        words = list(islice(located_words("".join(texts)), LIMITS.tokens + 1))
        starts = list(accumulate(map(len, texts), initial=0))
        if not words:
            return
        outside = not self._open and not self._headings
        self.n_words_inside += len(words) * bool(self._open)
        self.n_words_outside += len(words) * outside
        if self.wrap_loose_text and outside:
            self._open_block("p")
        self._last_word = len(self.tokens) + len(words) - 1
        for word, spelling, start, end in words:
            first, last = (bisect_right(starts, i) - 1 for i in (start, end - 1))
            place = UNKNOWN, UNKNOWN
            if min(places[first], places[last]) >= 0:
                place = places[first] + start - starts[first], places[last] + end - starts[last]
                if self.characters:
                    place = self.characters.source_range(*place)
            self._add(word, spelling, place, is_html=False)
        self.spelling[-1] = self.spelling[-1].rstrip(" ") + " "
        if self.wrap_loose_text and outside:
            self._close_block("p")


def _is_dropped(tag: str, attributes: Mapping[str, str]) -> bool:
    """Returns whether an element is hidden or not part of the article."""
    return (
        tag in DROPPED
        or "hidden" in attributes
        or attributes.get("aria-hidden") == "true"
        or attributes.get("role") in _NOISE_ROLES
        or bool(_HIDDEN_STYLE.search(attributes.get("style", "")))
    )


def parse_html(text: str) -> Page:
    """Returns the page of an HTML text; broken markup is repaired as browsers do it.

    If most words are outside all blocks (a page of bare ``<div>``), they become paragraphs.
    """
    encoded = text.encode("utf-8", "replace")
    for wrap_loose_text in (False, True):
        builder = PageBuilder(wrap_loose_text, CharacterData(encoded.decode()))
        parser: Any = etree.HTMLParser(
            target=builder, encoding="utf-8", huge_tree=True, remove_pis=True
        )
        parser.feed(encoded)
        page: Page = parser.close()
        for error in parser.error_log:
            if error.type_name == "ERR_RESOURCE_LIMIT":
                raise ValueError(
                    f"the page cannot be read as HTML: {error.message}; nest its elements less "
                    "deeply"
                )
        if builder.n_words_outside <= builder.n_words_inside:
            break
    return page
