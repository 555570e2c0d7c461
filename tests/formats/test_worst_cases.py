"""Tests that the time to read a text that other people wrote is linear in its length."""

import contextlib
import signal
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import pytest

from nq.beam.runner import failure
from nq.evaluation.text_match import normalize
from nq.formats import csv_rows, squad, tydi
from nq.formats.documents import decode_text, page_from_html, page_from_text, page_of
from nq.formats.markup import CharacterData
from nq.formats.words import located_words, spellings
from nq.postprocess.question_words import question_word
from nq.text import visible, without_password

SIZE = 500_000
CPU_S = 10


@contextlib.contextmanager
def limited_time() -> Iterator[None]:
    """Ends what takes more processor time than even a slow machine needs."""

    def end(_number: int, _frame: FrameType | None) -> None:
        pytest.fail(f"it took more than {CPU_S} s")

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def checked_csv(text: str) -> None:
    with tempfile.NamedTemporaryFile(suffix=".csv") as file:
        file.write(text.encode())
        file.flush()
        csv_rows.check_csv(file.name)
        assert list(csv_rows.rows(file.name)) == []


def consume(read: Callable[[str], Any], text: str) -> None:
    """Reads a text to its end, or until it is refused."""
    with contextlib.suppress(ValueError):
        result = read(text)
        if isinstance(result, Iterator):
            for _ in result:
                pass


BLANKS = " " * SIZE


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *(
            (read, text)
            for read in (partial(page_of, name="the page"), page_from_html)
            for text in (
                f"a{BLANKS}b",
                f"<!doctype{BLANKS}",
                f"a</p{BLANKS}b",
            )
        ),
        (page_from_html, "<" * SIZE),
        *(
            (page_from_html, f'<b style="{start}{part * (SIZE // len(part))}">a')
            for start, part in (
                ("", "("), ("", "'\\"), ("", "/*"), ("--a:", "var(--a,"), ("", "--a:var(--a);"),
                ("display:", "var(--a)"), ("", "display:block;"), ("display:", "block !"),
            )
        ),
        (page_from_html, "<x-y><template shadowrootmode=open><slot></slot></template>a" * 8_000),
        (page_from_html, "a" + "<p>&" * (SIZE // 4)),
        (page_from_html, "<ul><li>" * 49_000 + "a"),
        (page_from_html, "<div>" * 200_000 + "a" + "</ul>" * 200_000),
        (partial(page_of, name="a.md"), "    b\n    c\n\nd\n\n" * 10_000 + "a " * 150_000),
        *((partial(page_of, name="a.md"), "<div>\n" + part * 150_000) for part in ("<", "<!--")),
        *(
            (partial(page_of, name="a.md"), part * (SIZE // 100) + "a " * (SIZE // 4))
            for part in ("    a\n\n", "*a ", "[a](b) ", "# a\n", "<b>a ", "- a\n", "a ] `b` ")
        ),
        (page_from_text, f"a\n{BLANKS}b"),
        *(
            (CharacterData, part * (SIZE // len(part)))
            for part in ("<", "</", "<!--", "<!", "<a ='", "<a b='x' c", "<script>", "&a", "&#9")
        ),
        *(
            (located_words, start + part * (SIZE // len(part)))
            for start, part in (
                ("http://", "!"), ("", "http://! "), ("", "an"), ("", "1,"), ("", "a'"), ("", "A."),
                ("a", "\u0301"), ("", "!\u200d"), ("", "_"),
            )
        ),
        (lambda text: spellings([text], [True]), "<" + "_" * SIZE),
        (checked_csv, "question,context," + ",".join(map(str, range(100_000))) + "\n"),
        (tydi.split, "カ" * SIZE),
        (normalize, f"a{BLANKS}b"),
        (question_word, "'" * SIZE),
        (visible, "\x1b" * SIZE),
        (without_password, "//a" * (SIZE // 3)),
        (failure, " [while running '-ptransform-1" * (SIZE // 30)),
        (lambda text: squad.START.match(text.encode()), '{"a":"' + "\\\"" * (SIZE // 2)),
        (lambda text: squad.is_mrqa("", text.encode()), f"{BLANKS}{{{BLANKS}a"),
        (lambda text: decode_text(text.encode("latin-1"), "a page"), "é" + "<meta" * (SIZE // 5)),
    ],
)  # fmt: skip
def test_the_time_is_linear(read: Callable[[str], Any], text: str) -> None:
    with limited_time():
        consume(read, text)
