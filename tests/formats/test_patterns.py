"""Tests of regular expressions whose groups repeat without backtracking, on every Python."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nq.formats import markup, squad, words

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
    assert squad.START.match(document.encode())
