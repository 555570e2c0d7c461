"""Small documents of the kinds that ``nq ask`` reads."""

import io
import zipfile
from collections.abc import Collection, Mapping, Sequence
from html import escape
from types import MappingProxyType
from typing import Any

from pypdf import PdfReader, PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject, TextStringObject

WORDML = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
STRICT_WORDML = "http://purl.oclc.org/ooxml/wordprocessingml/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
COMPATIBILITY = "http://schemas.openxmlformats.org/markup-compatibility/2006"


def _names(**values: str) -> dict[NameObject, Any]:
    """Returns an entry of a dictionary of PDF for each name."""
    return {NameObject(f"/{key}"): NameObject(f"/{value}") for key, value in values.items()}


def _nested(**values: Any) -> DictionaryObject:
    return DictionaryObject({NameObject(f"/{key}"): value for key, value in values.items()})


def _stream(data: bytes) -> DecodedStreamObject:
    stream = DecodedStreamObject()
    stream.set_data(data)
    return stream


def _written(writer: PdfWriter) -> bytes:
    data = io.BytesIO()
    writer.write(data)
    return data.getvalue()


FONT = _names(Type="Font", Subtype="Type1", BaseFont="Helvetica")


def pdf(
    *pages: Sequence[str], password: str | None = None, headings: Collection[str] = ()
) -> bytes:
    """Returns a PDF document whose pages have these lines; an empty password opens by itself.

    The lines that are headings are in 16 points, others in 12.
    """
    writer = PdfWriter()
    font = writer._add_object(DictionaryObject(FONT))
    for lines in pages:
        page = writer.add_blank_page(612, 792)
        page[NameObject("/Resources")] = _nested(Font=_nested(F1=font))
        shown = "".join(
            f"/F1 {16 if line in headings else 12} Tf ({line}) Tj T* " for line in lines
        )
        content = _stream(f"BT 14 TL 72 700 Td {shown}ET".encode())
        page[NameObject("/Contents")] = writer._add_object(content)
    if password is not None:
        writer.encrypt(password, "owner", algorithm="AES-256")
    return _written(writer)


def pdf_of_content(content: str, texts: Mapping[str, str], *, is_form: bool = False) -> bytes:
    """Returns a PDF document with this content of its page, or of a form on it.

    ``texts`` are the actual texts of the named properties of marked content.
    """
    writer = PdfWriter(PdfReader(io.BytesIO(pdf(["x"]))))
    page, stream = writer.pages[0], _stream(content.encode())
    properties = {name: _nested(ActualText=TextStringObject(text)) for name, text in texts.items()}
    resources: Any = page["/Resources"]
    resources[NameObject("/Properties")] = _nested(**properties)
    if is_form:
        stream.update(_names(Type="XObject", Subtype="Form"))
        stream[NameObject("/Resources")] = DictionaryObject(resources)
        form = _nested(X=writer._add_object(stream))
        page[NameObject("/Resources")] = _nested(XObject=form)
        stream = _stream(b"/X Do")
    page[NameObject("/Contents")] = writer._add_object(stream)
    return _written(writer)


def run(text: str, about: str = "") -> str:
    return f'<w:r>{about}<w:t xml:space="preserve">{escape(text)}</w:t></w:r>'


def p(*parts: str) -> str:
    """Returns a paragraph of Word; a part without markup is a run."""
    return f"<w:p>{''.join(part if '<' in part else run(part) for part in parts)}</w:p>"


def cell(content: str, about: str = "") -> str:
    return f"<w:tc><w:tcPr>{about}</w:tcPr>{content}</w:tc>"


def tbl(*rows: str) -> str:
    return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>"


def docx(*paragraphs: str, table: Sequence[Sequence[str]] = ()) -> bytes:
    """Returns a Word document with paragraphs and a table."""
    rows = ["".join(cell(p(text)) for text in row) for row in table]
    return word("".join(map(p, paragraphs)) + (tbl(*rows) if rows else ""))


def word(
    body: str,
    *,
    main: str = "word/document.xml",
    namespace: str = WORDML,
    targets: Mapping[str, str] = MappingProxyType({}),
    parts: Mapping[str, str | bytes] = MappingProxyType({}),
) -> bytes:
    """Returns a Word document; the main part refers to ``targets`` by their ids.

    ``parts`` are others in ``word/``; in ``<w:root>`` the prefixes of names are declared.
    """
    about = f'xmlns:w="{namespace}" xmlns:r="{OFFICE}/relationships"'
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    about += f' xmlns:m="{OFFICE}/math" xmlns:mc="{COMPATIBILITY}"'
    data = io.BytesIO()

    def references(targets: Mapping[str, str], kind: str) -> str:
        rows = (
            f'<Relationship Id="{name}" Type="{OFFICE}/relationships/{kind}" Target="{target}"/>'
            for name, target in targets.items()
        )
        return f'<Relationships xmlns="{PACKAGE}/relationships">{"".join(rows)}</Relationships>'

    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        override = f'<Override PartName="/{main}" ContentType="{kind}"/>'
        types = f'<Types xmlns="{PACKAGE}/content-types">{override}</Types>'
        archive.writestr("[Content_Types].xml", types)
        archive.writestr("_rels/.rels", references({"r1": main}, "officeDocument"))
        archive.writestr(main, f"<w:document {about}><w:body>{body}</w:body></w:document>")
        folder, _, name = main.rpartition("/")
        archive.writestr(f"{folder}/_rels/{name}.rels", references(targets, "aFChunk"))
        for part, content in parts.items():
            root = f"<w:root {about}>".encode()
            xml = content.encode() if isinstance(content, str) else content
            archive.writestr(f"word/{part}", xml.replace(b"<w:root>", root))
    return data.getvalue()


def expanding_pdf(n_characters: int = 4_000_000, n_pages: int = 1) -> bytes:
    """Returns a small PDF document whose font makes 254 characters of each one on its pages."""
    writer = PdfWriter()
    cmap = f"1 beginbfchar\n<61> <{'0061' * 254}>\nendbfchar\n".encode()
    text = b"BT /F1 12 Tf 72 700 Td (" + b"a" * n_characters + b") Tj ET"
    characters, content = (
        writer._add_object(_stream(data).flate_encode()) for data in (cmap, text)
    )
    font = DictionaryObject({**FONT, NameObject("/ToUnicode"): characters})
    for _ in range(n_pages):
        page = writer.add_blank_page(612, 792)
        page[NameObject("/Resources")] = _nested(Font=_nested(F1=font))
        page[NameObject("/Contents")] = content
    return _written(writer)
