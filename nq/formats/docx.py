"""Word documents (docx): what Word displays of their text, as HTML with headings, lists and tables.

The names are those of the elements of ECMA-376, without their namespaces, which differ between its
editions. Elements that are not named here are read for the text in them.
"""

import email.policy
import io
import re
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from html import escape
from posixpath import basename, dirname, join, normpath
from typing import Any

from lxml import etree

from nq.formats.fields import LIMITS, RecordError

SUFFIXES = (".docx", ".docm", ".dotx", ".dotm")
MAX_NODES = 800_000
"""Elements and attributes."""
MAX_FILES = 10_000
FREE_BYTES = 1 << 20
EXPANSION = 100
"""Bytes of XML, and those for each byte of the file: of more, most would be repeated."""
_TYPE = re.compile(rb"word[a-z.]*\.main\+xml", re.IGNORECASE)
_MIME = re.compile(rb"(?:MIME-Version|Content-Type|From|Subject):", re.IGNORECASE)
_MARKUP = re.compile(r"<[a-zA-Z!?/]")
_HEADING = re.compile(r"heading ?([1-6]?)", re.IGNORECASE)
_PATHS = {
    "vanish": "rPr/vanish",
    "list": "pPr/numPr/numId",
    "level": "pPr/numPr/ilvl",
}
_HIDDEN_ENDS = ("pPr/rPr/del", "pPr/rPr/moveFrom", "pPr/rPr/vanish")
_INSERTED = {  # those of formulas as Word writes them in a line: 1/2, 10^6
    "br": "<br>",
    "cr": "<br>",
    "tab": "\t",
    "ptab": "\t",
    "noBreakHyphen": "\u2011",
    "softHyphen": "\u00ad",
    "den": "/",
    "sup": "^",
    "sub": "_",
}
# a cell is td, or th in a row of the head
_TABLES = {"tbl": "table", "tr": "tr", "tc": ""}
_SYMBOL = str.maketrans(  # letters and signs of the font Symbol
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz\xa3\xb3\xb4\xb9\xbb",
    "ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖαβχδεφγηιϕκλμνοπθρστυϖωξψζ≤≥×≠≈",  # noqa: RUF001
)


def is_docx(data: bytes) -> bool:
    """Returns whether a file is a Word document."""
    if data.count(b"PK\1\2") > MAX_FILES:
        return False
    with suppress(Exception), zipfile.ZipFile(io.BytesIO(data)) as archive:
        if "word/document.xml" in archive.namelist():
            return True
        with archive.open("[Content_Types].xml") as types:
            return bool(_TYPE.search(types.read(LIMITS.bytes).replace(b"\0", b"")))
    return False


def docx_html(data: bytes, name: str, decode: Callable[[bytes, str], str]) -> str:
    """Returns the text of a Word document as HTML; errors are those of ``nq.formats.pdf``.

    Cells have no paragraphs and lists, so that a row of a table is one line. ``decode`` returns
    the text of the bytes of a file that the document imports.
    """
    try:
        return _Document(data, decode).html()
    except Exception as error:  # zipfile and lxml raise many kinds for damaged documents
        problem = " ".join(str(error).split())[:200] or "out of memory"
        advice = f"that cannot be read ({problem}): save it again"
        raise ValueError(f"{name} is a Word document {advice}") from error


def _get(element: Any, name: str) -> str:
    """Returns an attribute, whatever its namespace is; "" if there is none."""
    found = (key for key in element.keys() if key.rpartition("}")[2] == name)  # noqa: SIM118
    value: str = element.get(next(found, name), "")  # its items would take quadratic time
    return value


def _value(element: Any, path: str) -> str | None:
    found = element.find(path)
    return None if found is None else _get(found, "val")


def _is_on(value: str | None) -> bool:
    return value not in (None, "0", "false", "off")


def _properties(element: Any) -> dict[str, str]:
    """Returns the properties that a style or a paragraph has itself."""
    values = {key: _value(element, path) for key, path in _PATHS.items()}
    for name in (_get(element, "styleId"), _value(element, "name") or ""):
        if heading := _HEADING.fullmatch(name):
            values["heading"] = heading[1] or "1"
    return {key: value for key, value in values.items() if value is not None}


def _remove_instructions(root: Any) -> None:
    """Removes the text of instructions of fields, which is not displayed, if all fields end."""
    # whether text in each open field is instruction
    fields = list[bool]()
    texts = list[Any]()
    for element in root.iter("fldChar", "t"):
        kind = _get(element, "fldCharType")
        if element.tag == "t":
            if fields and fields[-1]:
                texts.append(element)
        elif kind == "begin":
            fields.append(True)
        elif fields:
            fields.pop()
            if kind == "separate":
                fields.append(bool(fields and fields[-1]))
    if not fields:
        for text in texts:
            text.text = ""


class _Document:
    """A document, whose parts are read once."""

    def __init__(self, data: bytes, decode: Callable[[bytes, str], str]) -> None:
        self._archive = zipfile.ZipFile(io.BytesIO(data))
        self._decode = decode
        self._n_nodes = 0
        self._bytes_left = min(FREE_BYTES + EXPANSION * len(data), LIMITS.bytes)
        files = self._archive.infolist()
        self._files = {file.filename.replace("\\", "/").lower(): file for file in files}
        self._part = self._targets("").get("officeDocument", "word/document.xml")
        self._parts = self._targets(self._part)
        self._styles = {_get(style, "styleId"): style for style in self._side("styles")}
        self._style = cache(self._read_style)
        numbering = self._side("numbering")
        numbers = numbering.iterfind("num")
        self._numbers = {_get(one, "numId"): _value(one, "abstractNumId") for one in numbers}
        self._bullets = {
            (_get(level.getparent(), "abstractNumId"), _get(level, "ilvl"))
            for level in numbering.iterfind("abstractNum/lvl")
            if _value(level, "numFmt") == "bullet"
        }
        self._lists = list[str]()
        self._boxes = list[Any]()
        self._notes = dict[tuple[str, str], int]()
        self._paragraph_style = dict[str, str]()
        self._joined = ""
        self._cell = "td"
        self._n_cells = 0
        self._readers: dict[str, Callable[[Any], str | None]] = {
            **dict.fromkeys(("pPr", "rPr", "rt", "del", "moveFrom"), lambda _: None),
            **dict.fromkeys(("txbxContent", "txBody"), self._boxes.append),
            **dict.fromkeys(("footnoteReference", "endnoteReference"), self._note),
            **dict.fromkeys(_TABLES, self._table),
            "p": self._paragraph,
            "r": self._run,
            "t": self._words,
            "sym": self._symbol,
            "altChunk": self._import,
            "AlternateContent": self._alternative,
        }

    def html(self) -> str:
        """Returns the text as HTML, with the notes at its end."""
        html = self._text(self._xml(self._part)) + self._end_lists(0)
        self._n_cells += 1  # a note is one line too
        kinds = {kind for kind, _ in self._notes}
        notes = {(kind, _get(note, "id")): note for kind in kinds for note in self._side(kind)}
        items = [f"<li>{self._text(notes.get(key, ()))}</li>" for key in list(self._notes)]
        return f"{html}<ol>{''.join(items)}</ol>" if items else html

    def _read(self, part: str) -> bytes:
        """Returns the bytes of a part, if its nodes do not take too much memory."""
        file = self._files.pop(part.lower(), None)
        if file is None:
            raise RecordError(f"it has no part {part}, or refers to it twice")
        self._bytes_left -= file.file_size
        if self._bytes_left < 0:
            raise RecordError("too large: more bytes than a file of this size has")
        data = self._archive.read(file)
        marks = data.replace(b"\0", b"")  # of UTF-16
        self._n_nodes += marks.count(b"<") - marks.count(b"</") + marks.count(b"=")
        if self._n_nodes > MAX_NODES or b"<!ENTITY" in marks:
            raise RecordError(f"too large: more than {MAX_NODES} XML nodes, or entities")
        return data

    def _xml(self, part: str) -> Any:
        """Returns the root of a part, whose elements have names without namespaces."""
        parser = etree.XMLParser(resolve_entities=False, remove_comments=True, remove_pis=True)
        root = etree.fromstring(self._read(part), parser)
        for element in root.iter():
            element.tag = element.tag.rpartition("}")[2]
        _remove_instructions(root)
        return root

    def _targets(self, part: str) -> dict[str, str]:
        """Returns the parts to which a part refers, by the ids and the kinds of the references."""
        path = join(dirname(part), "_rels", f"{basename(part)}.rels")
        targets: dict[str, str] = {}
        references = self._xml(path) if path.lower() in self._files else ()
        for one in references:
            target = normpath(join("/", dirname(part), _get(one, "Target"))).lstrip("/")
            targets[_get(one, "Id")] = target
            targets.setdefault(basename(_get(one, "Type")), target)
        return targets

    def _side(self, kind: str) -> Any:
        """Returns the root of the styles, the numbering or the notes."""
        part = self._parts.get(kind, join(dirname(self._part), f"{kind}.xml"))
        return self._xml(part) if part.lower() in self._files else etree.Element("none")

    def _read_style(self, name: str | None) -> dict[str, str]:
        """Returns the properties of a style with those of the styles that it is based on."""
        style = self._styles.get(name or "", etree.Element("style", styleId=name or ""))
        base = _value(style, "basedOn")
        return (self._style(base) if base not in (None, name) else {}) | _properties(style)

    def _text(self, parent: Any) -> str:
        """Returns what is displayed of the elements in an element."""
        texts = []
        for element in parent:
            texts.append(_INSERTED.get(element.tag, ""))
            texts.append(self._readers.get(element.tag, self._text)(element) or "")
        return "".join(texts)

    def _words(self, element: Any) -> str:
        return escape(element.text or "", quote=False)

    def _alternative(self, element: Any) -> str:
        """Returns the first of the forms of a content that has text."""
        n_boxes = len(self._boxes)
        texts = (self._text(form) for form in element)
        return next(
            (text for text in texts if text or len(self._boxes) > n_boxes),
            "",
        )

    def _note(self, element: Any) -> str:
        key = (
            element.tag.removesuffix("Reference") + "s",
            _get(element, "id"),
        )
        return f"[{self._notes.setdefault(key, len(self._notes) + 1)}]"

    def _run(self, element: Any) -> str:
        own = _value(element, "rPr/vanish")
        style = self._style(_value(element, "rPr/rStyle"))
        toggled = _is_on(style.get("vanish")) != _is_on(self._paragraph_style.get("vanish"))
        is_hidden = toggled if own is None else _is_on(own)  # ECMA-376 17.7.3
        return "" if is_hidden else self._text(element)

    def _symbol(self, element: Any) -> str:
        """Returns a character, a blank for one that only a font of symbols knows."""
        code = int(_get(element, "char"), 16)
        is_known = _get(element, "font") == "Symbol"
        if is_known or 0xF000 <= code < 0xF100:
            return chr(code & 0xFF).translate(_SYMBOL) if is_known else " "
        return chr(code)

    def _paragraph(self, element: Any) -> str:
        """Returns a paragraph, with those before it whose ends are not displayed, and its boxes."""
        self._paragraph_style = self._style(_value(element, "pPr/pStyle"))
        text = self._joined + self._text(element)
        self._joined = ""
        following = element.getnext()
        is_joined = following is not None and following.tag == "p"
        if is_joined and any(_is_on(_value(element, path)) for path in _HIDDEN_ENDS):
            self._joined = text
            return ""
        block = self._block(text, self._paragraph_style | _properties(element))
        boxes = [*self._boxes]
        self._boxes.clear()
        return block + "".join(map(self._text, boxes))

    def _block(self, text: str, about: Mapping[str, str]) -> str:
        """Returns a paragraph as a line of a cell, an item of a list, or a block."""
        number = about.get("list", "")
        if self._n_cells:
            return f"{text}<br>"
        if "heading" not in about and number in self._numbers:
            level = about.get("level", "0")
            is_bullet = (self._numbers[number], level) in self._bullets
            return self._item(text, "ul" if is_bullet else "ol", min(int(level), 8))
        tag = f"h{about['heading']}" if "heading" in about else "p"
        return f"{self._end_lists(0)}<{tag}>{text}</{tag}>" if text.strip() else ""

    def _item(self, text: str, tag: str, depth: int) -> str:
        """Returns an item of a list in ``depth`` others."""
        if self._lists[depth : depth + 1] == [tag]:
            return f"{self._end_lists(depth + 1)}</li><li>{text}"
        before = self._end_lists(depth)
        n_new = depth + 1 - len(self._lists)
        self._lists += [tag] * n_new
        return before + f"<{tag}><li>" * n_new + text

    def _end_lists(self, depth: int) -> str:
        ended = reversed(self._lists[depth:])
        del self._lists[depth:]
        return "".join(f"</li></{tag}>" for tag in ended)

    def _table(self, element: Any) -> str:
        """Returns a table, a row or a cell."""
        is_cell = element.tag == "tc"
        outer = self._cell
        tag = outer if is_cell else _TABLES[element.tag]
        before = "" if self._n_cells else self._end_lists(0)
        self._cell = "th" if _is_on(_value(element, "trPr/tblHeader")) else "td"
        self._n_cells += is_cell
        text = self._text(element)
        self._n_cells -= is_cell
        self._cell = outer
        return f"{before}<{tag}>{text}</{tag}>"

    def _import(self, element: Any) -> str:
        """Returns the text of a file that the document imports: Word, HTML, MHTML or text."""
        part = self._parts.get(_get(element, "id"), "that is imported")
        data = self._read(part)
        charset = None
        before = self._end_lists(0)
        if is_docx(data):
            return before + _Document(data, self._decode).html()
        if _MIME.match(data):
            message: Any = email.message_from_bytes(data, policy=email.policy.default)
            body = message.get_body(("html", "plain"))
            data = body.get_payload(decode=True)
            charset = body.get_content_charset()
        text = data.decode(charset, "replace") if charset else self._decode(data, part)
        if part.lower().endswith(".txt") or not _MARKUP.search(text):
            return before + "".join(f"<p>{escape(line)}</p>" for line in text.splitlines())
        parser = etree.HTMLParser(encoding="utf-8")
        root = etree.fromstring(f"<body>{text}</body>".encode("utf-8", "replace"), parser)
        if any(entry.level == etree.ErrorLevels.FATAL for entry in parser.error_log):
            raise RecordError(f"its part {part} has more than 256 elements in each other")
        html: str = etree.tostring(root.find("body"), encoding="unicode", method="html")
        return before + html
