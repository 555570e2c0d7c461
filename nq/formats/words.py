"""Splits text into words as NQ has them, and joins the words of records into readable text.

A word is what the model reads, its spelling is what a person reads:

    text      Obama's "full-time" job (1961)
    words     Obama 's `` full - time '' job ( 1961 )
    spelling  Obama|'s |"|full|-|time|" |job |(|1961|)

A spelling ends in a space if the text has white space there, so that joining the spellings restores
the text.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from unicodedata import category, normalize

import numpy as np

from nq.records import IntArray, Span
from nq.text import JOINERS, UNSPACED

BLOCKS = ("p", "table", "tr", "ul", "ol", "dl", "li", "dd", "dt")
HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
TAG_SPELLINGS = {
    **dict.fromkeys(("</Td>", "</Th>"), " | "),
    **{f"<{slash}{t.capitalize()}>": "\n" for t in (*BLOCKS, *HEADINGS) for slash in ("", "/")},
}
_NQ_SPELLINGS = {
    **dict.fromkeys("\u2018\u2019", "'"),
    **dict.fromkeys("\u2013\u2014", "--"),
    "\u201c": "``",
    "\u201d": "''",
    "[": "(",
    "]": ")",
    "…": "...",
}
_OPENING = ("", *"([{<-/\u2013\u2014\u2018\u201c")
_JOINERS = JOINERS + "\uff9e\uff9f\U0001f3fb-\U0001f3ff"  # and marks of kana, skin tones
_CONTROL = r"\x00-\x1f\x7f-\x9f\ud800-\udfff"
# Groups that repeat are atomic: a match keeps a state for each repetition otherwise. Possessive
# ones are the same, but match wrongly before Python 3.11.5 (cpython 106052).
_TOKEN = r"""
    https?://[^\s{control}]*[^\W_]/?                  # an address without the punctuation after it
  | (?>(?:[^\W\d_]\.){{2,}})                          # U.S.
  | \b[A-Z]\.(?=(?:\r\n|\s)[A-Z])                        # the initial of L. Frank Baum
  | [$£€]?\d+(?>(?:[.,]\d+)*)(?>(?:[^\W{unspaced}]|[{marks}])*)   # 1,642 and 42.195 and 1920s
  | ['\u2019]{suffix}\b                                # Beethoven 's
  | [^\W_{unspaced}]+(?=n['\u2019]t\b) | n['\u2019]t\b    # did n't
  | {words}(?>(?:['\u2019](?!{suffix}\b){words}|&{words}|\.[a-z]{words})*)  # O'Hara, A&M, a.org
  | \.{{2,}} | --+
  | [^\s{control}][{marks}]*(?>(?:\u200d[^\s{control}][{marks}]*)*)   # any other character alone
"""
_NO_SPACE_BEFORE = {*".,;:!?)%]…", "''", "...", "n't"}
_NO_SPACE_AFTER = {*"($£€[", "``"}
_SUFFIX = "(?i:s|re|ll|ve|d|m)"
_SHORT_FORM = re.compile(f"'{_SUFFIX}")
_PLAIN = {"``": '"', "''": '"', "--": "\u2013"}
_WHITE_SPACE = re.compile(rf"[\s{_CONTROL}]")
_FORM = re.compile(  # ligatures, radicals, forms of Arabic, full and half width, for mathematics
    r"[\u2e80-\u2fdf\uf900-\ufdff\ufe70-\ufefc\uff10-\uff19\uff21-\uff3a\uff41-\uff5a"
    r"\uff66-\uff9f\U0001d400-\U0001d7ff\U0002f800-\U0002fa1f]+"
)
_CONTROL_CHARACTER = re.compile(f"[{_CONTROL}]")


@cache
def _token() -> re.Pattern[str]:
    basic = map(chr, range(0x300, 0x10000))
    marks = "".join(c for c in basic if category(c)[0] == "M") + _JOINERS
    sets = {
        "control": _CONTROL,
        "marks": marks,
        "unspaced": UNSPACED,
        "suffix": _SUFFIX,
    }
    words = rf"(?>(?:[^\W_{UNSPACED}][{marks}]*)+)"
    return re.compile(_TOKEN.format(words=words, **sets), re.VERBOSE)


def located_words(text: str) -> Iterator[tuple[str, str, int, int]]:
    """Yields each word of ``text`` with its spelling, and the range of its characters in ``text``.

    Only control characters and spaces are lost. Each letter of a script without blanks is a word.
    Ligatures, letters of full width and other forms of letters are those letters in the word, soft
    hyphens are not in it; the spelling is that of the text.

    >>> [word for word, *_ in located_words('Obama\\'s "full-time" job [1961] didn\\'t')]
    ['Obama', "'s", '``', 'full', '-', 'time', "''", 'job', '(', '1961', ')', 'did', "n't"]
    >>> list(located_words("It  rains."))
    [('It', 'It ', 0, 2), ('rains', 'rains', 4, 9), ('.', '.', 9, 10)]
    """
    for match in _token().finditer(text):
        source = match.group()
        if source == '"':
            before = text[match.start() - 1 : match.start()]
            word = "``" if before.strip() in _OPENING else "''"
        else:
            word = _NQ_SPELLINGS.get(source, source).replace("\u2019", "'")
            if not word.isascii():
                letters = _FORM.sub(lambda form: normalize("NFKC", form[0]), word)
                word = "".join(letters.replace("\u00ad", "").split()) or source
        spelling = f"{source} " if _WHITE_SPACE.match(text, match.end()) else source
        yield word, spelling, *match.span()


def spellings(tokens: Sequence[str], is_html: Iterable[bool]) -> list[str]:
    """Returns the spellings of a record's tokens, whose original text is not available.

    >>> "".join(spellings(["Obama", "'s", "full", "-", "time", "(", "1961", ")"], [False] * 8))
    "Obama's full-time (1961) "
    """
    spelled = [
        TAG_SPELLINGS.get(re.sub(r"[ _][^>]*", "", token), " ")  # <Td_colspan="2"> is <Td>
        if html
        else (_PLAIN.get(token) or _CONTROL_CHARACTER.sub("\ufffd", token)) + " "
        for token, html in zip(tokens, is_html, strict=True)
    ]
    for i, (token, following) in enumerate(pairwise(tokens)):
        joined = following in _NO_SPACE_BEFORE or token in _NO_SPACE_AFTER
        if joined or "-" in (token, following) or _SHORT_FORM.fullmatch(following):
            spelled[i] = spelled[i].rstrip(" ")
    return spelled


def span_at(chars: IntArray, words: IntArray, start: int, end: int) -> Span | None:
    """Returns the tokens of the words with characters in a range, ``None`` if there are none.

    ``chars`` ``[n_tokens, 2]`` has the characters of each token, ``words`` has those with text.
    """
    first = int(np.searchsorted(chars[words, 1], start, "right"))
    last = int(np.searchsorted(chars[words, 0], end, "left"))
    return Span(int(words[first]), int(words[last - 1]) + 1) if first < last else None
