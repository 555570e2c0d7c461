"""Helpers for text that is shown to users."""


def truncate(text: str, width: int) -> str:
    """Returns at most ``width`` characters of a text; the last one is "…" if it was longer.

    >>> truncate("Obama", 5), truncate("Obama", 4)
    ('Obama', 'Oba…')
    """
    return text if len(text) <= width else text[: width - 1] + "…"
