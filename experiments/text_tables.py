"""Tables as text: aligned columns for a terminal, and Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def grid(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Returns lines with aligned columns, the first one to the left and the others to the right.

    >>> grid(["", "n"], [["who", 12], ["when", 3]])
    ['       n', 'who   12', 'when   3']
    """
    table = [list(map(str, row)) for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            f"{cell:<{width}}" if i == 0 else f"{cell:>{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in table
    ]


def markdown(*rows: Sequence[str]) -> str:
    """Returns a Markdown table; the first row is its head.

    >>> print(markdown(("a", "b"), ("1", "2")), end="")
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [f"| {' | '.join(cells)} |\n" for cells in rows]
    return "".join([lines[0], f"|{'---|' * len(rows[0])}\n", *lines[1:]])
