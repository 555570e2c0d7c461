"""Word documents (docx): what Word displays of their text, as HTML with headings, lists and tables.

The names are those of the elements of ECMA-376, without their namespaces, which differ between its
editions. Elements that are not named here are read for the text in them.
"""

import email.policy
import io
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from html import escape
from posixpath import basename, dirname, join, normpath
from typing import Any

from lxml import etree

from nq.formats.fields import LIMITS, RecordError

SUFFIXES = (".docx", ".docm", ".dotx", ".dotm")
MAX_NODES, MAX_FILES, MAX_ATTRIBUTES, MAX_LEVEL = 800_000, 10_000, 64, 8
"""Elements and attributes, files, attributes of an element, and levels of lists."""
FREE_CHARACTERS, EXPANSION = 100_000, 10
"""Characters of text, and those for each byte of the file; a text is compressed to a third."""
_TYPE = re.compile(rb"word[a-z.]*\.main\+xml", re.IGNORECASE)
_MIME = re.compile(rb"(?:MIME-Version|Content-Type|From|Subject):", re.IGNORECASE)
_HEADING = re.compile(r"heading ?([1-6]?)", re.IGNORECASE)
_MARKUP = re.compile(r"<[a-zA-Z!?/]")
_OFF = (None, "0", "false", "off")
_INSERTED = {  # in formulas as Word writes them in a line: 1/2, 10^6
    **{"br": "<br>", "cr": "<br>", "tab": "\t", "ptab": "\t", "noBreakHyphen": "\u2011"},
    **{"softHyphen": "\u00ad", "den": "/", "sup": "^", "sub": "_"},
}
_TABLES = {"tbl": "table", "tr": "tr", "tc": "td"}
_SYMBOL = {  # letters and signs of the font Symbol
    **dict(enumerate(" !∀#∃%&∍()*+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_", 32)),  # noqa: RUF001
    **dict(enumerate("‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}~", 96)),
    **dict(enumerate("€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓", 160)),  # noqa: RUF001
}
_WINGDINGS = {0x6F: "☐", 0xA8: "☐", 0xE0: "→", 0xFB: "✗", 0xFC: "✓", 0xFD: "☒", 0xFE: "☑"}


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
        n_characters = min(LIMITS.characters, FREE_CHARACTERS + EXPANSION * len(data))
        counts = Counter(characters=-n_characters)
        return _Document(data, counts, decode).html()
    except Exception as error:  # zipfile and lxml raise many kinds for damaged documents
        problem = f"that cannot be read ({str(error) or 'out of memory'}): save it again"
        raise ValueError(f"{name} is a Word document {problem}") from error


def _value(element: Any, path: str) -> str | None:
    found = element.find(path)
    return None if found is None else found.get("val", "")


def _vanishes(properties: Mapping[str, str]) -> bool:
    return properties.get("vanish") not in _OFF


def _properties(element: Any) -> dict[str, str]:
    """Returns the properties that a style, a paragraph or a run has itself."""
    paths = {"vanish": "rPr/vanish", "list": "pPr/numPr/numId", "level": "pPr/numPr/ilvl"}
    values = {key: _value(element, path) for key, path in paths.items()}
    for name in (element.get("styleId", ""), _value(element, "name") or ""):
        if heading := _HEADING.fullmatch(name):
            values["heading"] = heading[1] or "1"
    return {key: value for key, value in values.items() if value is not None}


class _Document:
    """A document; ``counts`` are of its parts and of those of the documents that it imports."""

    def __init__(self, data: bytes, counts: Counter[str], decode: Callable[..., str]) -> None:
        self._archive = zipfile.ZipFile(io.BytesIO(data))
        self._counts, self._decode = counts, decode
        files = self._archive.infolist()
        self._files = {file.filename.replace("\\", "/").lower(): file for file in files}
        self._part = self._targets("").get("officeDocument", "word/document.xml")
        self._parts = self._targets(self._part)
        self._styles = {style.get("styleId"): style for style in self._side("styles")}
        self._style = cache(self._read_style)
        numbering = self._side("numbering")
        numbers = numbering.iterfind("num")
        self._numbers = {one.get("numId"): _value(one, "abstractNumId") for one in numbers}
        self._bullets = {
            (level.getparent().get("abstractNumId"), level.get("ilvl"))
            for level in numbering.iterfind("abstractNum/lvl")
            if _value(level, "numFmt") == "bullet"
        }
        self._out, self._lists, self._fields = list[str](), list[str](), list[bool]()
        self._joined, self._boxes = list[Any](), list[Any]()
        self._notes = dict[tuple[str, str | None], int]()
        self._paragraph_style = dict[str, str]()
        self._n_cells = self._n_instructions = 0
        self._is_head = False  # whether the row is one of the table's head
        self._readers: dict[str, Callable[[Any], object]] = {
            **dict.fromkeys(("pPr", "rPr", "rt", "del", "moveFrom"), len),  # not read
            **dict.fromkeys(("txbxContent", "txBody"), self._boxes.append),
            **dict.fromkeys(("footnoteReference", "endnoteReference"), self._note),
            **dict.fromkeys(_TABLES, self._table),
            **{"p": self._paragraph, "r": self._run, "sym": self._symbol, "fldChar": self._field},
            **{"altChunk": self._import, "AlternateContent": self._alternative},
        }

    def html(self) -> str:
        """Returns the text as HTML, with the notes at its end."""
        self._walk(self._xml(self._part))
        self._end_lists(0)
        self._n_cells += 1  # a note is one line too
        self._out.append("<ol>" * bool(self._notes))
        kinds = {kind for kind, _ in self._notes}
        notes = {(kind, note.get("id")): note for kind in kinds for note in self._side(kind)}
        for key in list(self._notes):
            self._wrap("li", notes.get(key, ()))
        return "".join([*self._out, "</ol>" * bool(self._notes)])

    def _read(self, part: str) -> bytes:
        """Returns the bytes of a part, if its nodes do not take too much memory."""
        if part.lower() not in self._files:
            raise RecordError(f"it has no part {part}")
        file = self._files[part.lower()]
        self._counts["bytes"] += max(0, file.file_size - file.compress_size)  # 0 if it is stored
        LIMITS.check(bytes=self._counts["bytes"], document_bytes=file.file_size)
        data = self._archive.read(file)
        marks = data.replace(b"\0", b"")  # of UTF-16
        self._counts["nodes"] += marks.count(b"<") - marks.count(b"</") + marks.count(b"=")
        if self._counts["nodes"] > MAX_NODES or b"<!ENTITY" in marks:
            raise RecordError(f"too large: more than {MAX_NODES} XML nodes, or entities")
        return data

    def _xml(self, part: str) -> Any:
        """Returns the root of a part; fields that do not end are read as text."""
        parser = etree.XMLParser(resolve_entities=False, remove_comments=True, remove_pis=True)
        root = etree.fromstring(self._read(part), parser)
        for element in root.iter():
            element.tag = element.tag.rpartition("}")[2]
            for key, value in element.items()[:MAX_ATTRIBUTES]:  # to set one takes linear time
                element.set(key.rpartition("}")[2], value)
        fields = Counter(field.get("fldCharType") for field in root.iter("fldChar"))
        if fields["begin"] != fields["end"]:
            etree.strip_elements(root, "fldChar")
        return root

    def _targets(self, part: str) -> dict[str, str]:
        """Returns the parts to which a part refers, by the ids and the kinds of the references."""
        path = join(dirname(part), "_rels", f"{basename(part)}.rels")
        targets: dict[str, str] = {}
        for one in self._xml(path) if path.lower() in self._files else ():
            target = normpath(join("/", dirname(part), one.get("Target", ""))).lstrip("/")
            targets[one.get("Id", "")] = target
            targets.setdefault(basename(one.get("Type", "")), target)
        return targets

    def _side(self, kind: str) -> Any:
        """Returns the root of the styles, the numbering or the notes."""
        part = self._parts.get(kind, join(dirname(self._part), f"{kind}.xml"))
        return self._xml(part) if part.lower() in self._files else etree.Element("none")

    def _read_style(self, name: str | None) -> dict[str, str]:
        """Returns the properties of a style with those of the styles that it is based on."""
        style = self._styles.get(name, etree.Element("style", styleId=name or ""))
        base = _value(style, "basedOn")
        return (self._style(base) if base not in (None, name) else {}) | _properties(style)

    def _add(self, text: str, is_markup: bool = False) -> None:
        """Adds text, if it is displayed."""
        if not self._n_instructions:
            self._count(len(text))
            self._out.append(text if is_markup else escape(text, quote=False))

    def _count(self, n_characters: int) -> None:
        """Counts text and blocks; the count is negative within the limit."""
        self._counts["characters"] += n_characters
        if self._counts["characters"] > 0:
            raise RecordError("too large: more text than a file of this size has")

    def _walk(self, parent: Any) -> None:
        """Adds the text in the elements of an element."""
        for element in parent:
            if element.tag == "t":
                self._add(element.text or "")
            else:
                self._add(_INSERTED.get(element.tag, ""), is_markup=True)
                self._readers.get(element.tag, self._walk)(element)

    def _wrap(self, tag: str, element: Any) -> None:
        if not self._n_cells:
            self._end_lists(0)
        self._count(len(tag))
        self._out.append(f"<{tag}>")
        self._walk(element)
        self._out.append(f"</{tag}>")

    def _alternative(self, element: Any) -> None:
        """Adds the first of the forms of a content that has text."""
        before = self._counts["characters"], len(self._boxes)
        for form in element:
            if before == (self._counts["characters"], len(self._boxes)):
                self._walk(form)

    def _note(self, element: Any) -> None:
        key = element.tag.removesuffix("Reference") + "s", element.get("id")
        self._add(f"[{self._notes.setdefault(key, len(self._notes) + 1)}]")

    def _run(self, element: Any) -> None:
        own, style = _value(element, "rPr/vanish"), self._style(_value(element, "rPr/rStyle"))
        is_hidden = _vanishes(style) != _vanishes(self._paragraph_style)  # ECMA-376 17.7.3
        if is_hidden if own is None else own not in _OFF:
            for field in element.iter("fldChar"):
                self._field(field)
        else:
            self._walk(element)

    def _field(self, element: Any) -> None:
        """Begins or ends a field, or its instruction, which is not displayed."""
        kind = element.get("fldCharType")
        if self._fields and kind != "begin":
            self._n_instructions -= self._fields.pop()
        if kind != "end":
            self._fields.append(kind == "begin")
        self._n_instructions += kind == "begin"

    def _symbol(self, element: Any) -> None:
        """Adds a character of a font of symbols, a blank if it is not known."""
        code, font = int(element.get("char", "20"), 16), element.get("font", "")
        names = {"Symbol": _SYMBOL, "Wingdings": _WINGDINGS}.get(font, {})
        is_private = names or 0xF000 <= code < 0xF100
        self._add(names.get(code & 0xFF, " ") if is_private else chr(code))

    def _paragraph(self, element: Any) -> None:
        """Adds a paragraph, with those before it whose ends are not displayed, and its boxes."""
        self._joined.append(element)
        following, end = element.getnext(), element.find("pPr/rPr")
        if end is not None and following is not None and following.tag == "p":
            is_deleted = end.find("del") is not None or end.find("moveFrom") is not None
            if is_deleted or _value(end, "vanish") not in _OFF:
                return
        joined, outer = [*self._joined], self._out
        self._joined.clear()
        self._out = []
        for one in joined:
            self._paragraph_style = self._style(_value(one, "pPr/pStyle"))
            self._walk(one)
        text, self._out = "".join(self._out), outer
        self._block(text, self._paragraph_style | _properties(element))
        boxes = [*self._boxes]
        self._boxes.clear()
        for box in boxes:
            self._walk(box)

    def _block(self, text: str, about: Mapping[str, str]) -> None:
        """Adds the text of a paragraph as a line of a cell, an item of a list, or a block."""
        self._count(len("<p></p>"))
        number, tag = about.get("list"), f"h{about['heading']}" if "heading" in about else "p"
        if self._n_cells:
            self._out.append(f"{text}<br>")
        elif tag == "p" and number in self._numbers:
            is_bullet = (self._numbers[number], about.get("level", "0")) in self._bullets
            tag, depth = "ul" if is_bullet else "ol", min(int(about.get("level", 0)), MAX_LEVEL)
            self._end_lists(depth + (self._lists[depth : depth + 1] == [tag]))
            self._out.append("</li><li>" * (len(self._lists) > depth))
            while len(self._lists) <= depth:
                self._lists.append(tag)
                self._out.append(f"<{tag}><li>")
            self._out.append(text)
        elif text.strip():
            self._end_lists(0)
            self._out.append(f"<{tag}>{text}</{tag}>")

    def _end_lists(self, depth: int) -> None:
        while len(self._lists) > depth:
            self._out.append(f"</li></{self._lists.pop()}>")

    def _table(self, element: Any) -> None:
        """Adds a table, a row or a cell, unless it is deleted or a part of the cell above it."""
        above, is_cell = element.getparent().getprevious(), element.tag == "tc"
        is_merged = _value(element, "tcPr/vMerge") in ("", "continue")
        is_merged &= above is not None and above.tag == "tr"
        is_deleted = any(element.find(path) is not None for path in ("trPr/del", "tcPr/cellDel"))
        if not is_merged and not is_deleted:
            is_head, tag = (
                self._is_head,
                "th" if is_cell and self._is_head else _TABLES[element.tag],
            )
            self._is_head = _value(element, "trPr/tblHeader") not in _OFF
            self._n_cells += is_cell
            self._wrap(tag, element)
            self._n_cells -= is_cell
            self._is_head = is_head

    def _import(self, element: Any) -> None:
        """Adds the text of a file that the document imports: Word, HTML, MHTML or text."""
        part = self._parts.get(element.get("id", ""), "that is imported")
        data = self._read(part)
        self._end_lists(0)
        if is_docx(data):
            self._out.append(_Document(data, self._counts, self._decode).html())
            return
        if _MIME.match(data):
            message: Any = email.message_from_bytes(data, policy=email.policy.default)
            data = message.get_body(("html", "plain")).get_payload(decode=True)
        text = self._decode(data, part)
        if part.lower().endswith(".txt") or not _MARKUP.search(text):
            text = "".join(f"<p>{escape(line)}</p>" for line in text.splitlines())
        parser = etree.HTMLParser(encoding="utf-8")
        root = etree.fromstring(f"<body>{text}</body>".encode("utf-8", "replace"), parser)
        if any(entry.level == etree.ErrorLevels.FATAL for entry in parser.error_log):
            raise RecordError(f"its part {part} has more than 256 elements in each other")
        html = etree.tostring(root.find("body"), encoding="unicode", method="html")
        self._count(len(html) // 2)  # as there are tags
        self._out.append(html)
