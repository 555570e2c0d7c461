"""How inline styles display elements, as far as it counts for their text.

Style sheets are not read. The rules are those of CSS Cascading, CSS Display and CSS Variables.
"""

import re
from collections import ChainMap
from functools import lru_cache
from typing import NamedTuple

MAX_SUBSTITUTIONS, MAX_CHARS = 16, 200
"""Rounds of substitutions in the value of a property, and characters of it."""
_INVALID = "!"  # is in no value
_STRING = r"""\\.|"(?>(?:[^"\\]|\\.)*)"?|'(?>(?:[^'\\]|\\.)*)'?"""
_COMMENT = re.compile(rf"/\*.*?(?:\*/|\Z)|({_STRING})", re.DOTALL)
_DELIMITER = re.compile(rf"{_STRING}|[;()\[\]{{}}]", re.DOTALL)
_VARIABLE = re.compile(r"var\(\s*(--[^\s,()]+)\s*(?:,([^()]*))?\)")
_WIDE = "inherit|initial|unset|revert|revert-layer"
_VALUES = {
    "display": r"none|contents|block|list-item|inline-(block|flex|grid|table)|-webkit-(inline-)?box"
    r"|(block |inline )?(flow|flow-root|flex|grid|table|ruby)|inline"
    r"|table-(cell|caption|column|row|(column|row|header|footer)-group)",
    "visibility": "visible|hidden|collapse",
    "float": "none|left|right|inline-start|inline-end",
    "position": "static|relative|absolute|fixed|sticky",
}
"""A pattern of the values of each property that counts, beside those of every property."""


class Box(NamedTuple):
    """How an element is displayed.

    Args:
        display: the value of the property.
        is_block: whether it is on other lines than what is beside it.
        is_visible: whether the text in it is displayed.
        has_items: whether all elements in it are blocks, as in a flex container.
        variables: the custom properties.
    """

    display: str = "block"
    is_block: bool = True
    is_visible: bool = True
    has_items: bool = False
    variables: ChainMap[str, str] = ChainMap()  # noqa: RUF012 it is never changed

    def child(self, default: str, style: str) -> "Box":
        """Returns the box of an element in it, whose ``display`` is ``default`` without a style.

        >>> Box().child("inline", "--a: none; display: block; display: var(--a)").display
        'none'
        """
        values, variables = dict(_cascade(style)) if style else {}, self.variables
        if own := {name: values.pop(name) for name in [*values] if name.startswith("--")}:
            variables = variables.new_child(own)
            for name, value in own.items():
                own[name] = _INVALID if value == "initial" else _substitute(value, variables)
        for name, value in values.items():
            computed = _substitute(value, variables)
            values[name] = computed if _is_valid(name, computed) else "unset"
        display = values.get("display", default)
        if display == "inherit":
            display = self.display
        elif display in ("unset", "initial"):
            display = "inline"
        elif display.startswith("revert"):
            display = default
        is_apart = (
            self.has_items
            or values.get("float", "none").startswith(("left", "right", "inline"))
            or values.get("position") in ("absolute", "fixed")
        )
        visibility = values.get("visibility", "inherit")
        return Box(
            "none" if display.startswith("table-column") else display,
            display != "contents" and (is_apart or not re.search("inline|ruby", display)),
            visibility in ("visible", "initial")
            or (self.is_visible and visibility not in ("hidden", "collapse")),
            self.has_items if display == "contents" else bool(re.search("flex|grid|box", display)),
            variables,
        )


@lru_cache(1000)
def _cascade(style: str) -> dict[str, str]:
    """Returns the last valid value of each property; those that are important come first."""
    text, start, depth = _COMMENT.sub(lambda match: match[1] or " ", style.lower()) + ";", 0, 0
    values, important = dict[str, str](), dict[str, str]()
    for match in _DELIMITER.finditer(text):
        depth = max(0, depth + (match[0] in "([{") - (match[0] in ")]}"))
        if match[0] == ";" and not depth:
            name, _, value = (
                " ".join(s.split()) for s in text[start : match.start()].partition(":")
            )
            before, _, mark = value.rpartition("!")
            is_important = mark.strip() == "important"
            value = before.strip() if is_important else value
            if name.startswith("--") or (
                name in _VALUES and ("var(" in value or _is_valid(name, value))
            ):
                (important if is_important else values)[name] = value
            start = match.end()
    return values | important


def _is_valid(name: str, value: str) -> bool:
    return bool(re.fullmatch(f"{_VALUES[name]}|{_WIDE}", value))


def _substitute(value: str, variables: ChainMap[str, str]) -> str:
    """Returns a value with those of its variables."""

    def replace(match: re.Match[str]) -> str:
        value = variables.get(match[1], _INVALID)
        return str(match[2] or "" if _INVALID in value and match[2] is not None else value)

    for _ in range(MAX_SUBSTITUTIONS):
        if "var(" not in value or len(value) > MAX_CHARS:
            break
        value = _VARIABLE.sub(replace, value)
    return _INVALID if "var(" in value else " ".join(value.split())
