"""HTML -> the tokens and candidates that NQ would have for the page.

``<p>It <b>rains</b>.</p>`` becomes ``<P> It rains . </P>``, a candidate. Tags of the blocks that
NQ knows remain as tokens, other blocks separate words, inline tags disappear. What a browser
displays is in one top-level candidate, in order: text outside of NQ's blocks becomes a paragraph,
and a heading is part of the block after it. Elements that a browser does not display and those
around the article (navigation, footers) are dropped; what surrounds an article of Wikipedia is
known by class names, on pages that name MediaWiki as their generator.
"""

import contextlib
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import accumulate, islice
from typing import Any, NamedTuple

import numpy as np
from lxml import etree

from nq.answers import Page
from nq.formats.fields import LIMITS
from nq.formats.markup import RAW, TAG, UNKNOWN, CharacterData
from nq.formats.words import BLOCKS, HEADINGS, TAG_SPELLINGS, located_words
from nq.records import Candidate, Example, Original, Span

CELLS = ("td", "th")
KEPT = {tag: tag.capitalize() for tag in (*BLOCKS, *CELLS, *HEADINGS)}
BLOCK_LEVEL = frozenset(
    """
    address article aside blockquote body caption center col colgroup dd details dialog dir div dl
    dt fieldset figcaption figure form frameset h1 h2 h3 h4 h5 h6 header hgroup hr html legend li
    listing main menu ol optgroup option p plaintext pre search section summary table tbody td
    tfoot th thead tr ul xmp
    """.split()  # noqa: SIM905
)
"""Elements that a browser displays apart from the text around them; all others are inline."""
SOFT_BREAKS = ("br", "img", "input", "button", "meter", "progress")
"""Inline elements that separate words."""
MAX_TITLE_CHARS = 200
MAX_DEPTH = 256
FEED_BYTES = 4096
_TAG = re.compile(TAG)
_BREAK = " ", UNKNOWN
DROPPED = frozenset(
    """
    annotation audio canvas datalist footer iframe math nav noembed noframes noscript rp rt
    script select style svg template textarea title video
    """.split()  # noqa: SIM905
)
_NOISE_ROLES = ("navigation", "contentinfo", "search")
_NOISE_CLASSES = frozenset(  # of MediaWiki; NQ has no candidates for these blocks either
    """
    catlinks mw-editsection mw-jump-link navbox printfooter reference references reflist toc
    """.split()  # noqa: SIM905
)
_STRING = r"""\\.|"(?>(?:[^"\\]|\\.)*)"?|'(?>(?:[^'\\]|\\.)*)'?"""
_COMMENT = re.compile(rf"/\*.*?(?:\*/|\Z)|({_STRING})", re.DOTALL)
_DECLARATION = re.compile(rf"(?:{_STRING}|[^;])+", re.DOTALL)
_VALUES = {
    "display": r"none|contents|block|list-item|inline-(block|flex|grid|table)|-webkit-(inline-)?box"
    r"|(block |inline )?(flow|flow-root|flex|grid|table|ruby)|inline"
    r"|table-(cell|caption|row|(row|header|footer)-group)",
    "visibility": "visible|hidden|collapse",
}
"""Patterns of the properties of an inline style that are read; style sheets are not."""


class Box(NamedTuple):
    """How an element is displayed: the value of its property, and whether text in it is visible."""

    display: str
    is_visible: bool

    @property
    def is_block(self) -> bool:
        """Whether it is on other lines than what is beside it."""
        return self.display != "contents" and not re.search("inline|ruby", self.display)


LocatedWord = tuple[str, str, tuple[int, int]]  # with its spelling and its range of characters


class PageBuilder:
    """Builds a page token by token; a target of lxml's HTML parser.

    ``characters`` are those of the HTML; plain text has its place with it. More than ``max_depth``
    open elements are a ``RecursionError``.
    """

    max_depth: float = math.inf

    def __init__(self, characters: CharacterData | None = None) -> None:
        self.title = ""
        self.characters = characters
        self.tokens: list[str] = []
        self.is_html: list[bool] = []
        self.spelling: list[str] = []
        self.chars: list[tuple[int, int]] = []
        self.is_wiki = False
        self.candidates: list[Candidate | None] = []  # None while open, or without a word
        self._text: list[tuple[str, int]] = []  # with its index in the page's characters
        self._open: list[tuple[int, int]] = []  # first token and index of each open candidate
        self._boxes = [Box("block", True)]  # of the elements that are open and not dropped
        self._dropped: list[str] = []
        self._headings = 0
        self._last_word = -1
        self._depth = 0
        self._before: list[LocatedWord] = []  # headings of the next block

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth > self.max_depth:
            raise RecursionError
        if attributes.get("name") == "generator":
            self.is_wiki |= attributes.get("content", "").startswith("MediaWiki")
        style = _declared(attributes.get("style", ""))
        inherited = "visible" if self._boxes[-1].is_visible else "hidden"
        box = Box(
            style.get("display", _display(tag, attributes)),
            style.get("visibility", inherited) == "visible",
        )
        hidden = box.display == "none" or _is_dropped(tag, attributes, self.is_wiki)
        if self._dropped or hidden:
            self._dropped.append(tag)
            return
        self._boxes.append(box)
        self._separate(tag, box, 1, self._open_block)

    def end(self, tag: str) -> None:
        self._depth -= 1
        if self._dropped:
            self._dropped.pop()
            return
        self._separate(tag, self._boxes.pop(), -1, self._close_block)

    def data(self, text: str, place: int = UNKNOWN) -> None:
        """Adds text, or a part of a word; ``place`` is its index in plain text."""
        if self.characters:
            place = self.characters.find(text)
        if not self._dropped:
            if self._boxes[-1].is_visible:
                self._text.append((text, place))
            if len(self.tokens) + len(self._text) > LIMITS.tokens:
                self._flush()  # so that a page beyond the limit is not read to its end
        elif self._dropped == ["title"] and len(self.title) < MAX_TITLE_CHARS:
            self.title = " ".join((self.title + text).split())

    def close(self, plain: str | None = None) -> Page:
        """Returns the page; ``plain`` is the user's text if it is plain."""
        self._flush(is_end=True)
        candidates = [c for c in self.candidates if c]
        original = Original(
            np.array(self.chars, np.int64).reshape(-1, 2),
            plain,
            self.spelling,
        )
        own: Any = {
            "is_wiki": self.is_wiki,
            "title": self.title,
            "original": original,
        }
        example = Example(0, "", self.tokens, self.is_html, candidates, **own)
        return Page(example, self.spelling)

    def _separate(self, tag: str, box: Box, headings: int, add_tag: Callable[[str], None]) -> None:
        """Separates the words before a tag from those after it; that of a block becomes a token."""
        if tag in SOFT_BREAKS:
            if self._text and self._text[-1] is not _BREAK:
                self._text.append(_BREAK)
        elif box.is_block or tag in KEPT:
            self._flush()
            if tag in HEADINGS:
                self._headings += headings
            if tag in KEPT and box.is_visible and (self._open or tag not in HEADINGS):
                add_tag(tag)

    def _add(self, token: str, spelling: str, place: tuple[int, int] | None = None) -> None:
        """Adds a word with its place, or a tag."""
        self.tokens.append(token)
        self.is_html.append(place is None)
        self.spelling.append(spelling)
        self.chars.append(place or (-1, -1))

    def _open_block(self, tag: str) -> None:
        token = f"<{KEPT[tag]}>"
        spelling = TAG_SPELLINGS.get(token, "")
        if self.tokens[-1:] in (["<Td>"], ["<Th>"]):
            spelling = ""  # the cells of a row are one line
        if tag in BLOCKS:
            self._open.append((len(self.tokens), len(self.candidates)))
            self.candidates.append(None)
        self._add(token, spelling)

    def _close_block(self, tag: str) -> None:
        if tag in CELLS and self.tokens[-1][:3] in ("</P", "</H"):
            self.spelling[-1] = ""
        closing = f"</{KEPT[tag]}>"
        self._add(closing, TAG_SPELLINGS.get(closing, ""))
        if tag in BLOCKS:
            start, index = self._open.pop()
            if self._last_word >= start:
                span = Span(start, len(self.tokens))
                self.candidates[index] = Candidate(span, top_level=not self._open)

    def _flush(self, is_end: bool = False) -> None:
        """Adds the words since the last tag that separates words; those of headings wait."""
        n_tokens = len(self.tokens) + len(self._before)
        LIMITS.check(tokens=n_tokens, candidates=len(self.candidates))
        words = list(self._words())
        is_loose = not self._open
        self._text = []
        is_heading = is_loose and self._headings > 0
        if words:
            word, spelling, place = words[-1]
            words[-1] = (
                word,
                spelling.rstrip(" ") + ("\n" if is_heading else " "),
                place,
            )
        if is_heading:
            self._before += words
        elif words or (is_end and self._before):
            if is_loose:
                self._open_block("p")
            self._last_word = len(self.tokens)
            for word, spelling, place in self._before + words:
                self._add(word, spelling, place)
            self._before = []
            if is_loose:
                self._close_block("p")

    def _words(self) -> Iterator[LocatedWord]:
        """Yields the words of the text, with their spellings and places."""
        texts, places = zip(*self._text, strict=True) if self._text else ((), ())
        starts = list(accumulate(map(len, texts), initial=0))
        words = islice(located_words("".join(texts)), LIMITS.tokens + 1)
        for word, spelling, start, end in words:
            first, last = (bisect_right(starts, i) - 1 for i in (start, end - 1))
            place = UNKNOWN, UNKNOWN
            if min(places[first], places[last]) >= 0:
                place = (
                    places[first] + start - starts[first],
                    places[last] + end - starts[last],
                )
                if self.characters:
                    place = self.characters.source_range(*place)
            yield word, spelling, place


@lru_cache(1000)
def _declared(style: str) -> Mapping[str, str]:
    """Returns the last valid display and visibility of a style; those that are important count.

    >>> _declared("display: none; DISPLAY: block; display: x; visibility: hidden !important")
    {'display': 'block', 'visibility': 'hidden'}
    """
    values = dict[str, str]()
    important = dict[str, str]()
    for declaration in _DECLARATION.findall(_COMMENT.sub(r"\1 ", style.lower())):
        name, _, value = (" ".join(part.split()) for part in declaration.partition(":"))
        value, _, mark = (part.strip() for part in value.partition("!"))
        if name in _VALUES and re.fullmatch(_VALUES[name], value):
            (important if mark == "important" else values)[name] = value
    return values | important


def _display(tag: str, attributes: Mapping[str, str]) -> str:
    is_closed = tag == "dialog" and "open" not in attributes
    is_popover = "popover" in attributes and tag != "dialog"
    if is_closed or is_popover or "hidden" in attributes:
        return "none"
    return "block" if tag in BLOCK_LEVEL else "inline"


def _is_dropped(tag: str, attributes: Mapping[str, str], is_wiki: bool) -> bool:
    """Returns whether an element is never displayed or not part of the article."""
    classes = attributes.get("class", "").lower().split() if is_wiki else ()
    return (
        tag in DROPPED
        or attributes.get("aria-hidden") == "true"
        or attributes.get("role") in _NOISE_ROLES
        or not _NOISE_CLASSES.isdisjoint(classes)
    )


def parse_html(
    text: str,
    new_builder: Callable[[CharacterData], PageBuilder] = PageBuilder,
) -> Page:
    """Returns the page of an HTML text; broken markup is repaired as browsers do it.

    A text with more than ``MAX_DEPTH`` open elements is read as blocks that are not nested, since
    lxml searches all open elements at each end tag, which takes quadratic time.
    """
    source = text.encode("utf-8", "replace").decode()
    with contextlib.suppress(RecursionError):
        return _parse(source, new_builder(CharacterData(source)), MAX_DEPTH)
    return _parse(_TAG.sub(_flat, source), new_builder(CharacterData(source)), math.inf)


def _parse(markup: str, builder: PageBuilder, max_depth: float) -> Page:
    builder.max_depth = max_depth
    data = markup.encode()
    parser: Any = etree.HTMLParser(
        target=builder, encoding="utf-8", huge_tree=True, remove_pis=True
    )
    for start in range(0, max(1, len(data)), FEED_BYTES):  # lxml reads a piece to its end
        parser.feed(data[start : start + FEED_BYTES])
    page: Page = parser.close()
    return page


def _flat(tag: re.Match[str]) -> str:
    """Replaces a tag where elements are not nested: ``<hr>`` for one that separates words."""
    name = tag["tag"].lower().removeprefix("/")
    if name in RAW:
        return tag[0]
    return "<hr>" if name in BLOCK_LEVEL or name in SOFT_BREAKS else ""
