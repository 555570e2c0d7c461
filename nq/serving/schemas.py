"""What a client sends to ``POST /v1/ask`` and what it gets, and errors in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nq.answers import Page
from nq.formats.documents import page_from_html, page_from_text, page_of
from nq.formats.fields import LIMITS
from nq.text import one_line, truncate, visible

MAX_PAGES, MAX_TOP = 1000, 100
MAX_ERROR_CHARS = 300


class NamedPage(BaseModel):
    """One of several pages."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(description="what the answer calls it")] = ""
    page: Annotated[str, Field(description="plain text with blank lines, or HTML")]


class AskRequest(BaseModel):
    """A question about a page, or about several."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "example": {
                "question": "when was it automated",
                "page": "The lighthouse was first lit in 1874.\n\nIt was automated in 1986.",
            }
        },
    )

    question: Annotated[str, Field(description="a question in the model's language")]
    page: Annotated[str | None, Field(description="plain text with blank lines, or HTML")] = None
    pages: Annotated[
        list[NamedPage],
        Field(
            max_length=MAX_PAGES,
            description="in place of page: several, whose best blocks are read",
        ),
    ] = []
    format: Annotated[
        Literal["auto", "text", "html"],
        Field(description="what each page is; auto decides it by the page's content"),
    ] = "auto"
    top: Annotated[int, Field(ge=0, le=MAX_TOP, description="number of runners-up")] = 3


class TextSpan(BaseModel):
    """A part of the page: its text, its tokens, and its characters in the page that was sent.

    Blocks count from 1, and so do the pages of a text that form feeds divide.
    """

    model_config = ConfigDict(extra="forbid")

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


class RunnerUp(BaseModel):
    """Another block with its best short answer."""

    model_config = ConfigDict(extra="forbid")

    answer: str | None
    document: str | None
    short_probability: float | None
    long_answer: TextSpan | None
    long_probability: float | None


class AskAnswer(BaseModel):
    """The answer to a question about a page; the same object as ``nq ask --json`` prints."""

    model_config = ConfigDict(extra="forbid")

    question: str
    answer: Annotated[str | None, Field(description="yes, no, or text of the page")]
    document: Annotated[str | None, Field(description="name of the page, one of several")]
    yes_no_answer: Literal["YES", "NO", "NONE"]
    asks_yes_no: Annotated[
        bool, Field(description="whether it asks for yes or no: read the long answer")
    ]
    short_answers: list[ShortSpan]
    short_probability: float | None
    long_answer: TextSpan | None
    long_probability: float | None
    runners_up: list[RunnerUp]
    unread_blocks: Annotated[int, Field(description="blocks that a limit left out")]
    skipped_documents: Annotated[list[str], Field(description="files that cannot be read")]


class Problem(BaseModel):
    """Why there is no answer."""

    error: Annotated[str, Field(description="one sentence")]


def parse_request(data: bytes) -> tuple[str, list[Page], int]:
    """Returns question, pages and number of runners-up in the body of ``POST /v1/ask``.

    Raises:
        ValueError: the body is not JSON, a field is missing or wrong, or a page cannot be read; the
            text says which.

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
        pages.append(replace(read(one.page, name), name=name))
    return one_line(request.question), pages, request.top


def _sentence(error: ValidationError) -> str:
    """Returns what is wrong with a body, without what the client sent."""
    first, *others = error.errors(include_url=False, include_context=False)
    message = str(first["msg"])
    if first["type"] == "json_invalid":
        reason = message.removeprefix("Invalid JSON: ")
        return truncate(visible(f"the body is not JSON: {reason}"), MAX_ERROR_CHARS)
    name = ".".join(map(str, first["loc"]))
    more = "; other fields are wrong too" if others else ""
    text = f"{name}: {message[0].lower()}{message[1:]}" if name else f"the body: {message}"
    return truncate(visible(text + more), MAX_ERROR_CHARS)
