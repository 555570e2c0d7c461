"""text -> words as NQ has them, each with its own spelling; and back for records.

The words are what the model reads, the spelling is what a person reads:

    text      Obama's "full-time" job (1961)
    words     Obama 's `` full - time '' job ( 1961 )
    spelling  Obama|'s |"|full|-|time|" |job |(|1961|)

A spelling ends in a blank where the text has one, so that joining them gives the text back.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise

_LINES = (
    "P",
    "Table",
    "Tr",
    "Ul",
    "Ol",
    "Dl",
    "Li",
    "Dd",
    "Dt",
    "H1",
    "H2",
    "H3",
    "H4",
    "H5",
    "H6",
)
LAYOUT = {  # what the tags of a page become where it is shown to a person
    **dict.fromkeys(("</Td>", "</Th>"), " | "),
    **{f"<{slash}{name}>": "\n" for slash in ("", "/") for name in _LINES},
}
_SPELLED_BY_NQ = {
    **dict.fromkeys("\u2018\u2019", "'"),
    **dict.fromkeys("\u2013\u2014", "--"),
    **{"\u201c": "``", "\u201d": "''", "[": "(", "]": ")", "…": "..."},
}
_OPENING = ("", *"([{<-/\u2013\u2014\u2018\u201c")
_JOINERS = "\u00ad\u200c\u200d\u2060\U0001f3fb-\U0001f3ff"  # and skin tones
_CONTROL = r"\x00-\x1f\x7f-\x9f\ud800-\udfff"
_TOKEN = r"""
    https?://[^\s{control}]*[^\W_]/?                  # an address, without the mark after it
  | (?:[^\W\d_]\.){{2,}}                              # U.S.
  | \b[A-Z]\.(?=\s[A-Z])                              # the initial of L. Frank Baum
  | [$£€]?\d+(?:[.,]\d+)*[\w{marks}]*                 # 1,642 and 42.195 and 1920s
  | ['\u2019]{suffix}\b                                # Beethoven 's
  | [^\W_]+(?=n['\u2019]t\b) | n['\u2019]t\b          # did n't
  | {word}+(?:['\u2019](?!{suffix}\b){word}+|&{word}+|\.[a-z]{word}+)*  # O'Hara, A&M, example.org
  | \.{{2,}} | --+
  | [^\s{control}][{marks}]*(?:\u200d[^\s{control}][{marks}]*)*    # every other mark alone
"""
_NO_BLANK_BEFORE = {*".,;:!?)%]…", "''", "...", "n't"}
_NO_BLANK_AFTER = {*"($£€[", "``"}
_SUFFIX = "(?i:s|re|ll|ve|d|m)"
_SHORT_FORM = re.compile(f"'{_SUFFIX}")
_PLAIN = {"``": '"', "''": '"', "--": "\u2013"}
_GAP = re.compile(rf"[\s{_CONTROL}]")
_UNSHOWN = re.compile(f"[{_CONTROL}]")


@cache
def _token() -> re.Pattern[str]:
    basic = map(chr, range(0x300, 0x10000))
    marks = "".join(c for c in basic if unicodedata.category(c)[0] == "M") + _JOINERS
    word = rf"(?:[^\W_][{marks}]*)"
    return re.compile(
        _TOKEN.format(control=_CONTROL, marks=marks, word=word, suffix=_SUFFIX), re.VERBOSE
    )


def words(text: str) -> Iterator[tuple[str, str]]:
    """Each word of ``text`` and its spelling; only control characters and blanks get lost.

    >>> [word for word, _ in words('Obama\\'s "full-time" job [1961] didn\\'t')]
    ['Obama', "'s", '``', 'full', '-', 'time', "''", 'job', '(', '1961', ')', 'did', "n't"]
    >>> "".join(spelling for _, spelling in words('the  "full-time" job (1961).'))
    'the "full-time" job (1961).'
    """
    for match in _token().finditer(text):
        source = match.group()
        if source == '"':
            before = text[match.start() - 1 : match.start()]
            word = "``" if before.strip() in _OPENING else "''"
        else:
            word = _SPELLED_BY_NQ.get(source, source).replace("\u2019", "'")
        yield word, source + " " * bool(_GAP.match(text, match.end()))


def spelling(tokens: Sequence[str], is_html: Iterable[bool]) -> list[str]:
    """The spelling of a record's tokens, whose text is not at hand: punctuation drawn close.

    >>> "".join(spelling(["Obama", "'s", "full", "-", "time", "(", "1961", ")"], [False] * 8))
    "Obama's full-time (1961) "
    """
    spelled = [
        LAYOUT.get(_tag_name(token), " ") if html else _shown(token)
        for token, html in zip(tokens, is_html, strict=True)
    ]
    for i, (this, then) in enumerate(pairwise(tokens)):
        if _is_close(this, then):
            spelled[i] = spelled[i].rstrip(" ")
    return spelled


def _tag_name(token: str) -> str:
    """``<Td_colspan="2">`` -> ``<Td>``."""
    return re.sub(r"[ _][^>]*", "", token)


def _shown(token: str) -> str:
    plain = _PLAIN.get(token) or _UNSHOWN.sub("\ufffd", token)
    return f"{plain} "


def _is_close(this: str, then: str) -> bool:
    """Whether two words stand without a blank between them."""
    hyphen = "-" in (this, then)
    return (
        then in _NO_BLANK_BEFORE
        or this in _NO_BLANK_AFTER
        or hyphen
        or bool(_SHORT_FORM.fullmatch(then))
    )
