"""The character data of an HTML text, and where each character is in the HTML.

lxml reports no positions. So the text between the tags is found here by the rules of HTML5 for
tags, comments, scripts and character references, and what lxml reports is looked up in it, in
order:

    HTML            <p>AT&amp;T was <b>big</b>
    character data  AT&T was big
    range of AT&T   [3, 11)
"""

import html
import re
from array import array
from bisect import bisect_right

UNKNOWN = -2
"""In place of an index: a character whose place is not known."""
WINDOW = 4096
"""How many characters ahead the data are searched, where lxml dropped what is before them."""
_RAW = (
    "script",
    "style",
    "xmp",
    "iframe",
    "noembed",
    "noframes",
    "plaintext",
)
_RAW_EXCEPT_REFERENCES = ("title", "textarea")
RAW = (*_RAW, *_RAW_EXCEPT_REFERENCES)
"""Elements in which there are no tags."""
_REFERENCE = r"&(?:\#(?:\d{1,9}|[xX][0-9a-fA-F]{1,7});?|[a-zA-Z][a-zA-Z0-9]{0,31};?)|\r(?=\n)"
TAG = r"""<(?P<tag>/?[a-zA-Z][^\s/>]*+)(?>(?:[^>=]++|=\s*+(?:"[^"]*"|'[^']*')?)*)(?:>|\Z)"""
MARKUP = re.compile(  # atomic, so that the time is linear in the length
    rf"""
    <!--(?:-?>|.*?(?:--!?>|\Z))
  | {TAG}
  | <[!?][^>]*+(?:>|\Z)
  | </[^>]++(?:>|\Z) | </>
  | """
    + _REFERENCE,
    re.VERBOSE | re.DOTALL,
)
_REFERENCES = re.compile(_REFERENCE)
_AS_LXML = str.maketrans("\r\0", "\n\ufffd")


class CharacterData:
    """The character data of an HTML text without lone surrogates; lxml's are found in them."""

    def __init__(self, source: str) -> None:
        self._parts: list[str] = []
        # index of each segment in the data, its range in the source; of a segment that is copied
        # character by character the end is -1
        self._starts = array("q")
        self._firsts = array("q")
        self._ends = array("q")
        self._length = self._next = 0
        self._read(source)
        self._data = "".join(self._parts).translate(_AS_LXML)
        del self._parts

    def find(self, data: str) -> int:
        """Returns the index in the data of text that lxml reports, ``UNKNOWN`` if not found."""
        at = self._next
        if not self._data.startswith(data, at):
            if data.isspace():  # there is white space everywhere
                return UNKNOWN
            at = self._data.find(data, at, at + len(data) + WINDOW)
            if at < 0:
                return UNKNOWN
        self._next = at + len(data)
        return at

    def source_range(self, start: int, end: int) -> tuple[int, int]:
        """Returns where a range of the data, which is not empty, begins and ends in the source."""
        first, last = (bisect_right(self._starts, i) - 1 for i in (start, end - 1))
        begin = self._firsts[first]
        stop = self._ends[last]
        if self._ends[first] < 0:
            begin += start - self._starts[first]
        if stop < 0:
            stop = self._firsts[last] + end - self._starts[last]
        return begin, stop

    def _read(self, source: str) -> None:
        position = 0
        while match := MARKUP.search(source, position):
            self._add(source[position : match.start()], position)
            position = match.end()
            name = (match["tag"] or "").lower()
            if not match["tag"]:
                self._decode(match)
            elif name in RAW:
                close = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(source, position)
                end = close.start() if close and name != "plaintext" else len(source)
                for reference in _REFERENCES.finditer(source, position, end):
                    if name in _RAW_EXCEPT_REFERENCES or reference[0] == "\r":
                        self._add(source[position : reference.start()], position)
                        self._decode(reference)
                        position = reference.end()
                self._add(source[position:end], position)
                position = end
        self._add(source[position:], position)

    def _decode(self, match: re.Match[str]) -> None:
        """Adds a character reference; of a line end of two characters the first is left out."""
        if match[0].startswith("&"):
            text = html.unescape(match[0])
            self._add(text, match.start(), -1 if text == match[0] else match.end())

    def _add(self, text: str, first: int, end: int = -1) -> None:
        if text:
            self._parts.append(text)
            self._starts.append(self._length)
            self._firsts.append(first)
            self._ends.append(end)
            self._length += len(text)
