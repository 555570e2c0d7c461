"""What a client sends to ``POST /v1/ask`` and what it gets, and errors in one sentence."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Base64Encoder, BaseModel, EncodedBytes, Field, ValidationError

from nq.answers import Page
from nq.formats.documents import decode_page, page_from_html, page_from_text, page_of
from nq.formats.fields import LIMITS
from nq.text import one_line, truncate, visible

MAX_PAGES = 1000
MAX_NAME_CHARS = 1000
MAX_TOP = 100
MAX_ERROR_CHARS = 300
EXAMPLE: Any = {
    "example": {"question": "when was it automated", "page": "It was automated in 1986."}
}


class _Base64(Base64Encoder):
    """Base64 of RFC 4648, section 4, which may have line breaks."""

    @classmethod
    def decode(cls, data: bytes) -> bytes:
        """Returns the bytes of a text; ``ValueError`` if it is not exactly what they encode to."""
        decoded = super().decode(data)
        if cls.encode(decoded) != data.translate(None, b"\r\n"):
            raise ValueError("expected base64, and nothing else")
        return decoded


class NamedPage(BaseModel, extra="forbid", strict=True):
    """One of several pages: a text, or a file."""

    name: str = Field(
        "",
        max_length=MAX_NAME_CHARS,
        description="what the answer calls it",
    )
    page: str | None = Field(None, description="plain text with blank lines, or HTML")
    data: Annotated[bytes, EncodedBytes(encoder=_Base64)] | None = Field(
        None,
        description="in place of page a file of text, HTML, Markdown, PDF or Word, in base64; the "
        "suffix of its name tells which, or else the content",
    )


class AskRequest(BaseModel, extra="forbid", strict=True, json_schema_extra=EXAMPLE):
    """A question about a page, or about several, whose best blocks are read."""

    question: str = Field(description="a question in the model's language")
    page: str | None = Field(None, description="plain text with blank lines, or HTML")
    pages: list[NamedPage] = Field(
        [],
        max_length=MAX_PAGES,
        description="several, or files",
    )
    format: Literal["auto", "text", "html"] = Field(
        "auto", description="what each page is, not each file; auto decides it by its content"
    )
    top: int = Field(3, ge=0, le=MAX_TOP, description="number of runners-up")


class TextSpan(BaseModel, extra="forbid"):
    """A part of the page: its text, its tokens, and its characters in the page that was sent.

    Blocks count from 1, and so do the pages of a text that form feeds divide.
    """

    text: str
    start_token: int
    end_token: int
    start_char: int
    end_char: int
    block: int
    page_number: int | None


class ShortSpan(TextSpan):
    """A short answer, with its characters in the text of the long answer; -1 if not in it."""

    start_in_long: int
    end_in_long: int


class RunnerUp(BaseModel, extra="forbid"):
    """Another block with its best short answer."""

    answer: str | None
    document: str | None
    short_probability: float | None = Field(description="null without a short answer")
    long_answer: TextSpan | None
    long_probability: float | None


class AskAnswer(BaseModel, extra="forbid"):
    """The answer to a question about a page; the same object as ``nq ask --json`` prints."""

    question: str
    answer: str | None = Field(description="yes, no, or text of the page")
    document: str | None = Field(description="name of the page, one of several")
    yes_no_answer: Literal["YES", "NO", "NONE"]
    asks_yes_no: bool = Field(description="it asks for yes or no, which the model cannot tell")
    short_answers: list[ShortSpan]
    short_probability: float | None = Field(description="null without a short answer")
    score: float | None
    long_answer: TextSpan | None
    long_probability: float | None
    runners_up: list[RunnerUp]
    unread_blocks: int = Field(description="blocks that a limit left out")
    skipped_documents: list[str] = Field(description="files that cannot be read")


class Problem(BaseModel):
    """Why there is no answer."""

    error: str = Field(description="one sentence")


def parse_request(data: bytes) -> tuple[str, list[Page], int]:
    """Returns question, pages and number of runners-up in the body of ``POST /v1/ask``.

    Raises:
        ValueError: the body is not JSON, a field is missing or wrong, or a page cannot be read; the
            text says which.
        Error: the package that reads a file is not installed.

    >>> parse_request(b'{"question": "who", "page": "It rains.", "top": "3"}')
    Traceback (most recent call last):
    ValueError: top: input should be a valid integer
    """
    try:
        request = AskRequest.model_validate_json(data)
    except ValidationError as error:
        raise ValueError(_sentence(error)) from None
    LIMITS.check(question_characters=len(request.question))
    if not request.question.strip():
        raise ValueError("question: it is empty; expected a question")
    if (request.page is None) == (not request.pages):
        raise ValueError("page: expected either page, a text, or pages, a list of at least one")
    read: Callable[[str, str], Page] = page_of
    if request.format != "auto":
        read = page_from_text if request.format == "text" else page_from_html
    pages = [] if request.page is None else [read(request.page, "the page")]
    for number, one in enumerate(request.pages, 1):
        name = one.name or f"document {number}"
        if (one.page is None) == (one.data is None):
            raise ValueError(f"pages.{number - 1}: expected either page, a text, or data, a file")
        page = read(one.page or "", name) if one.data is None else decode_page(one.data, name)
        pages.append(replace(page, name=name))
    return one_line(request.question), pages, request.top


def _sentence(error: ValidationError) -> str:
    """Returns what is wrong with a body, without what the client sent."""
    first, *others = error.errors(include_url=False, include_context=False)
    message = str(first["msg"])
    if first["type"] == "json_invalid":
        reason = message.removeprefix("Invalid JSON: ")
        return truncate(visible(f"the body is not JSON: {reason}"), MAX_ERROR_CHARS)
    if first["type"] == "extra_forbidden":
        fields = (AskRequest if len(first["loc"]) == 1 else NamedPage).model_fields
        message = f"no such field: expected {', '.join(fields)}"
    name = ".".join(map(str, first["loc"]))
    more = "; other fields are wrong too" if others else ""
    text = f"{name}: {message[0].lower()}{message[1:]}" if name else f"the body: {message}"
    return truncate(visible(text + more), MAX_ERROR_CHARS)
