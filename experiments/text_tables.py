"""Tables as text: Markdown."""

from collections.abc import Sequence


def markdown(*rows: Sequence[str]) -> str:
    """Returns a Markdown table; the first row is its head.

    >>> print(markdown(("a", "b"), ("1", "2")), end="")
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [f"| {' | '.join(cells)} |\n" for cells in rows]
    return "".join([lines[0], f"|{'---|' * len(rows[0])}\n", *lines[1:]])
