"""Helpers for text that users see, and the words that BM25 compares."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

BYTE_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
# Besides control characters: line and paragraph separators, lone surrogates, and the characters
# that reverse the direction of the text after them.
_OTHERS = r"\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_CONTROL = re.compile(rf"[\x00-\x1f{_OTHERS}]")
UNSPACED = (  # Thai, Lao, Tibetan, Myanmar, Khmer, ideographs, kana, Bopomofo, Yi
    r"\u0e00-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3031-\u3035\u303b\u3041-\u31ff"
    r"\u3400-\ua48f\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Letters of scripts without blanks between words, for a set in a regular expression."""
ABBREVIATIONS = frozenset(
    """
    Adm Bros Capt Co Col Corp Dr Fig Figs Fr Ft Gen Gov Hon Jr Lt Maj Messrs Mr Mrs Ms Mt No Nos Ph
    Prof Pt Rep Rev Sen Sgt Sr St Ste Vol c ca cf e.g ed eds fig figs i.e p pp v vol vs
    """.split()  # noqa: SIM905
)
"""Words whose full stop before a name or a number does not end a sentence."""
_USER = re.compile(
    r"://(?!\[)(?:[^/\s:@]*:(?!\s|\d+(?:[^\w@]|$))(?:(?!://).)*|[^/\s:@]*:(?:(?!://)\S)*|[^/\s]*)@"
)
"""User and password of a URI. A password may have ``/``, ``@`` and blanks; a port is none."""
_SECRET = re.compile(
    "(?i)pass|pwd|secret|token|credential|authorization|^sig$|signature|odbc_connect"
    "|(?:ssl|api|access|account|private)[_-]?key$"
)
_TERM = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}]+")
JOINERS = "\u00ad\u200c\u200d\u2060"  # soft hyphens, and characters that join others


def terms(text: str) -> list[str]:
    """Returns the words of a text in the form in which BM25 compares them.

    Case, accents, ligatures, soft hyphens and the kinds of apostrophes and hyphens do not count.
    In scripts without blanks each letter is a word.

    >>> terms("L'Été of O\u2019Hara's o\ufb03ce, 東京")
    ['l', 'ete', 'of', 'o', 'hara', 's', 'office', '東', '京']
    """
    if not text.isascii():
        letters = (c for c in unicodedata.normalize("NFKD", text) if c not in JOINERS)
        text = "".join(c for c in letters if unicodedata.category(c)[0] != "M")
    return _TERM.findall(text.casefold())


def truncate(text: str, width: int) -> str:
    """Returns at most ``width`` characters of a text; the last one is "…" if it was longer.

    >>> truncate("Obama", 5), truncate("Obama", 4)
    ('Obama', 'Oba…')
    """
    return text if len(text) <= width else text[: width - 1] + "…"


def one_line(text: str) -> str:
    """Returns a text as one line of valid Unicode, with single blanks between its words.

    >>> one_line("  who built   it ")
    'who built it'
    """
    return " ".join(text.encode("utf-8", "replace").decode("utf-8").split())


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns the end of an error message with the known name that resembles another most.

    >>> did_you_mean("mixd", ["mixed", "xla"]), did_you_mean("fast", ["mixed", "xla"])
    (" (did you mean 'mixed'?)", '')
    """
    close = get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def counted(count: int, noun: str) -> str:
    """Returns a number with its noun, in the plural unless it is one.

    >>> counted(0, "window"), counted(1, "window")
    ('0 windows', '1 window')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def format_bytes(size: int) -> str:
    """Returns a number of bytes in the largest unit of which it has one.

    >>> format_bytes(0), format_bytes(1023), format_bytes(3 << 19), format_bytes(5 << 50)
    ('0 bytes', '1023 bytes', '1.5 MiB', '5120.0 TiB')
    """
    unit = min(max(size.bit_length() - 1, 0) // 10, len(BYTE_UNITS) - 1)
    return f"{size / (1 << 10 * unit):.{1 if unit else 0}f} {BYTE_UNITS[unit]}"


def visible(text: str, lines: bool = False) -> str:
    r"""Returns text from data or from a file name for a terminal or a log.

    Control characters become visible escapes, because a terminal would obey them. Escaped text
    that is part of JSON stays JSON of the same value. With ``lines`` line feeds stay.

    >>> print(visible("a\x1b[31mb\n"))
    a\u001b[31mb\u000a
    """
    return _CONTROL.sub(
        lambda match: "\n" if lines and match[0] == "\n" else f"\\u{ord(match[0]):04x}",
        text,
    )


def without_password(text: str, uri: str = "") -> str:
    """Returns a text whose URIs show neither user nor password, nor secrets in the query.

    A text that begins with a URI is taken for one, in which a secret may have blanks. The parts of
    user and password of the ``uri`` are not shown either, since errors of a library quote parts.

    >>> without_password("at db://me:a/b c@d@host/runs?ssl=1&sslkey=k, not at hf://datasets/a/b@c")
    'at db://***@host/runs?ssl=1&sslkey=*** not at hf://datasets/a/b@c'
    """
    end = "[^&]*" if re.match(r"[\w+.-]+://", text) else r"[^&\s]*"
    text = re.sub(
        rf"([?&;]([\w.-]+)=){end}",
        lambda match: f"{match[1]}***" if _SECRET.search(match[2]) else match[0],
        _USER.sub("://***@", text),
    )
    user = _USER.search(uri)
    parts = filter(None, re.split(r"[:/@\s]", user[0])) if user else ()
    for part in sorted(parts, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(part)}(?!\w)", "***", text)
    return text


def listed(names: Sequence[str], limit: int = 8) -> str:
    """Returns the first names for a message.

    >>> listed(["a", "b", "c"], 2), listed([])
    ('a, b, …', '(none)')
    """
    shown = [*names[:limit], "…"] if len(names) > limit else names
    return ", ".join(shown) or "(none)"


def grid(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Returns lines with columns that are aligned to the right, except the first one.

    >>> grid(["", "n"], [["who", 12], ["when", 3]])
    ['       n', 'who   12', 'when   3']
    """
    table = [list(map(str, row)) for row in (head, *rows)]
    first, *others = (max(map(len, column)) for column in zip(*table, strict=True))
    return ["  ".join([row[0].ljust(first), *map(str.rjust, row[1:], others)]) for row in table]


def html_table(
    lines: Sequence[str],
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    align: str = "left",
) -> str:
    """Returns lines of text and a table, if it has rows, as HTML; what is no ``Markup`` is escaped.

    It has no classes and scripts, which some viewers of notebooks remove. ``align`` is for all
    columns but the first.
    """
    from markupsafe import Markup

    html = Markup("<p>{}</p>").format(Markup("<br>").join(lines))
    cell = Markup('<{0} style="text-align:{1}">{2}</{0}>')
    parts = list[Markup]()
    for tag, texts in [("th", head)] + [("td", row) for row in rows]:
        cells = (cell.format(tag, align if i else "left", text) for i, text in enumerate(texts))
        parts.append(Markup("<tr>{}</tr>").format(Markup().join(cells)))
    return str(html + Markup("<table>{}</table>").format(Markup().join(parts)) if rows else html)
