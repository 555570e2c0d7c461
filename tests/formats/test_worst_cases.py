"""Tests that texts of other people are read in linear time, by patterns without backtracking."""

import contextlib
import io
import json
import re
import signal
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.beam.runner import failure
from nq.evaluation.text_match import normalize
from nq.formats import csv_rows, elements, json_head, markup, squad, tydi, words
from nq.formats.documents import decode_text, page_from_html, page_from_text, page_of
from nq.formats.lines import Row
from nq.formats.markup import CharacterData
from nq.formats.words import located_words, spellings
from nq.postprocess.question_words import question_word
from nq.text import visible, without_password

SIZE = 500_000
CPU_S = 60


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


def json_list(text: str) -> Iterator[Row]:
    return elements.elements(io.BytesIO(text.encode()), text[:9999].encode())


BLANKS = " " * SIZE
BLANK_TEXTS = f"a{BLANKS}b", f"<!doctype{BLANKS}", f"a</p{BLANKS}b"
any_page, markdown = partial(page_of, name="the page"), partial(page_of, name="a.md")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((read, text) for read in (any_page, page_from_html) for text in BLANK_TEXTS),
        (page_from_html, "<" * SIZE),
        *(
            (page_from_html, f'<b style="{part * (SIZE // len(part))}">a')
            for part in ("'\\", "/*", "display:block;")
        ),
        (page_from_html, "a" + "<p>&" * (SIZE // 4)),
        (page_from_html, "<ul><li>" * 49_000 + "a"),
        (page_from_html, "<div>" * 200_000 + "a" + "</ul>" * 200_000),
        (markdown, "    b\n    c\n\nd\n\n" * 10_000 + "a " * 150_000),
        (markdown, "<div>\n" + "<!--" * 150_000),
        *(
            (markdown, part * (SIZE // 100) + "a " * (SIZE // 4))
            for part in ("    a\n\n", "*a ", "[a](b) ", "<b>a ", "a ] `b` ")
        ),
        (page_from_text, f"a\n{BLANKS}b"),
        *(
            (CharacterData, part * (SIZE // len(part)))
            for part in ("</", "<!--", "<a ='", "<a b='x' c", "<script>", "&#9")
        ),
        *(
            (located_words, start + part * (SIZE // len(part)))
            for start, part in (
                ("http://", "!"), ("", "an"), ("", "1,"), ("", "a'"), ("a", "\u0301"),
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
        (lambda text: json_head.list_start(text.encode(), "data"), '{"a":"' + "\\\"" * (SIZE // 2)),
        *(
            (json_list, start + part * (SIZE // len(part)))
            for start in ("[", '{"a": ')
            for part in ('{"a":[1,', '{"a":"\\"', '{"a":1},', '{"a":"",', '{"a":1}' + BLANKS)
        ),
        (lambda text: squad.is_mrqa("", text.encode()), f"{BLANKS}{{{BLANKS}a"),
        (lambda text: decode_text(text.encode("latin-1"), "a page"), "é" + "<meta" * (SIZE // 5)),
    ],
)  # fmt: skip
def test_the_time_is_linear(read: Callable[[str], Any], text: str) -> None:
    with limited_time():
        consume(read, text)


# --- patterns -----------------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
POSSESSIVE_GROUP = re.compile(r"[)}](?:[*+?]|\{\{?\d*,?\d*\}\}?)\+")
ATOMIC, POSSESSIVE = re.compile(r"\(\?>"), re.compile(r"([*+?])\+")


def test_no_group_has_a_possessive_quantifier() -> None:
    """Before Python 3.11.5 it matches wrongly where the group can match in several ways."""
    assert re.findall(POSSESSIVE_GROUP, r"(?:a|b)*+ {word}++ (?:a){{2,}}+ a++ [ab]*+") == [
        *(")*+", "}++", "){{2,}}+"),
    ]
    paths = [path for name in ("nq", "eval", "experiments") for path in (ROOT / name).rglob("*.py")]
    assert len(paths) > 200
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    assert [path for path, text in texts.items() if POSSESSIVE_GROUP.search(text)] == []


@pytest.mark.parametrize(
    ("pattern", "letters"),
    [
        (words._token(), "as1.,'&-$~ \u0301\u200d\U0001f600"),
        (re.compile(markup.TAG, re.DOTALL), "<>/a= \"'"),
    ],
    ids=["words", "tags"],
)
@given(data=st.data())
def test_without_backtracking_the_same_is_found(
    pattern: re.Pattern[str], letters: str, data: st.DataObject
) -> None:
    text = data.draw(st.text(st.sampled_from(letters), max_size=12))
    backtracking = POSSESSIVE.sub(r"\1", ATOMIC.sub("(?:", pattern.pattern))
    expected = re.finditer(backtracking, text, pattern.flags)
    spans = [match.span() for match in pattern.finditer(text)]
    assert spans == [match.span() for match in expected]


KEYS = st.text(max_size=3)
SCALARS: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text('a"\\\n,:[]{} é', max_size=9)
)
VALUES = SCALARS
for _ in range(3):
    VALUES = SCALARS | st.lists(VALUES, max_size=3) | st.dictionaries(KEYS, VALUES, max_size=3)


@given(st.dictionaries(KEYS, VALUES, max_size=3), st.sampled_from([None, 2]))
def test_data_of_squad_may_follow_any_json(metadata: dict[str, Any], indent: int | None) -> None:
    document = json.dumps({**metadata, "data": [{}]}, indent=indent)
    assert json_head.list_start(document.encode(), squad.DATA) == document.rindex("[")
