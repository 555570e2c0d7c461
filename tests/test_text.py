"""Texts for people: what they may not show."""

import pytest

from nq.text import without_password


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("at db://me:pa/ss@host:5/runs.", "at db://***@host:5/runs."),
        ("at db://me:p a ss@host/runs.", "at db://***@host/runs."),
        ("at db://me:12/34@host/runs.", "at db://***@host/runs."),
        ("at db://:pass@host, http://token@host", "at db://***@host, http://***@host"),
        ("db://host/a?password=b c&d=e", "db://host/a?password=***&d=e"),
        (
            "at db://host/?d=e&sslkey=/a/b&sslpassword=c fails",
            "at db://host/?d=e&sslkey=***&sslpassword=*** fails",
        ),
        ("at mssql:///?odbc_connect=PWD%3Db", "at mssql:///?odbc_connect=***"),
        ("at hf://datasets/org/name@main/a.parquet: ask me@host", None),
        ("at http://127.0.0.1:5000/#/runs?viewStateShareKey=nq, or me@host", None),
        ("at http://[::1]:5000/a or me@host", None),
        ("at https://host: org/name@main", None),
    ],
)
def test_uris_show_no_password_and_other_texts_stay(text: str, expected: str | None) -> None:
    expected = expected or text
    assert without_password(text) == expected == without_password(expected)


def test_parts_of_a_known_password_are_not_shown() -> None:
    uri = "db://me:pa@ss/word@host/runs"
    text = "no host 'ss', no port 'me:pa', no passage at host"
    assert without_password(text, uri) == "no host '***', no port '***:***', no passage at host"
