"""The three layouts of Natural Questions, which share candidates and annotations.

| layout                              | page                                               |
|-------------------------------------|----------------------------------------------------|
| NQ v1.0, the official downloads     | ``document_tokens``: words with bytes and HTML flag|
| simplified NQ, of Kaggle            | ``document_text``: words joined by single spaces   |
| Hugging Face's natural_questions    | ``document``: NQ v1.0 with objects of lists        |

A row of Hugging Face has ``id``, ``document{title, tokens{token[], is_html[], start_byte[],
end_byte[]}}``, ``question{text}``, ``long_answer_candidates{start_token[], …}`` and
``annotations{long_answer[{…}], short_answers[{start_token[], …}], yes_no_answer[]}``, where
``yes_no_answer`` is 0 for NO, 1 for YES, -1 for none. Newer exports write lists of objects
instead of objects of lists; both are read.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from nq.formats import fields
from nq.formats.fields import (
    LIMITS,
    Record,
    RecordError,
    check_type,
    get,
    objects,
    optional_text,
)
from nq.records import (
    BLOCK_TYPES,
    Annotation,
    Candidate,
    Example,
    IntArray,
    Span,
    YesNo,
)

TOKENS = "document_tokens"
TEXT = "document_text"
DOCUMENT = "document"
CANDIDATES = "long_answer_candidates"
ANNOTATIONS = "annotations"
_YES_NO = {-1: "NONE", 0: "NO", 1: "YES"}


def decode_v1(record: Record) -> Example:
    """Returns the example in a record of NQ v1.0."""
    tokens = _tokens(get(record, TOKENS, list), "html_token", TOKENS)
    if "question_text" in record or "question_tokens" not in record:
        question = get(record, "question_text", str)
    else:  # some exports omit the text
        words = enumerate(get(record, "question_tokens", list))
        question = " ".join(check_type(word, f"question_tokens[{i}]", str) for i, word in words)
    return _example(record, question, *tokens)


def decode_simplified(record: Record) -> Example:
    """Returns the example in a record of simplified NQ."""
    text = get(record, TEXT, str)
    LIMITS.check(characters=len(text), tokens=text.count(" ") + 1)
    tokens = text.split(" ")
    question = get(record, "question_text", str)
    return _example(record, question, tokens, [is_tag(token) for token in tokens], None)


def decode_row(record: Record) -> Example:
    """Returns the example in a row of Hugging Face."""
    document = get(record, DOCUMENT, dict)
    annotations = []
    if record.get(ANNOTATIONS) is not None:
        for i, row in enumerate(objects(record, ANNOTATIONS)):
            where = f"{ANNOTATIONS}[{i}]"
            answer = get(row, "yes_no_answer", int, str, where=where, default=-1)
            if type(answer) is int and answer not in _YES_NO:
                raise RecordError(f"{where}.yes_no_answer must be 0, 1 or -1, found {answer}")
            shorts = objects(row, "short_answers", where)
            answer = _YES_NO.get(answer, answer)
            annotations.append({**row, "short_answers": shorts, "yes_no_answer": answer})
    as_v1 = {
        "example_id": fields.example_id(record, "id"),
        "document_title": document.get("title"),
        CANDIDATES: objects(record, CANDIDATES),
        ANNOTATIONS: annotations,
    }
    question = get(get(record, "question", dict), "text", str, where="question")
    tokens = _tokens(
        objects(document, "tokens", DOCUMENT),
        "is_html",
        f"{DOCUMENT}.tokens",
    )
    return _example(as_v1, question, *tokens)


def is_tag(token: str) -> bool:
    """Returns whether a token as a whole is an HTML tag, that is, matches ``<[^>]*>``.

    >>> [is_tag(t) for t in ("<P>", "</Td>", '<Th_colspan="2">', "<3", "a<b>", "<a>b>")]
    [True, True, True, False, False, False]
    """
    return token[:1] == "<" and token.find(">") == len(token) - 1


def _example(
    record: Record,
    question: str,
    tokens: list[str],
    is_html: list[bool],
    token_bytes: IntArray | None,
) -> Example:
    candidates = []
    for i, item in enumerate(get(record, CANDIDATES, list)):
        where = f"{CANDIDATES}[{i}]"
        block = _span(item, len(tokens), where)
        if block is None:
            raise RecordError(f"{where} has no span: its start and end are -1")
        candidates.append(
            Candidate(
                block,
                get(item, "top_level", bool, where=where, default=True),
            )
        )

    def annotation(item: Any, where: str) -> Annotation:
        answer = get(item, "long_answer", dict, where=where)
        long = _span(answer, len(tokens), f"{where}.long_answer")
        shorts = [
            _span(short, len(tokens), f"{where}.short_answers[{i}]")
            for i, short in enumerate(get(item, "short_answers", list, where=where))
        ]
        index = candidate_index(answer, len(candidates), f"{where}.long_answer")
        if long is not None and index is None:
            same = (i for i, candidate in enumerate(candidates) if candidate.span == long)
            index = min(same, key=lambda i: not candidates[i].top_level, default=None)
            if index is None:
                raise RecordError(f"{where}.long_answer has no candidate_index and is no candidate")
        return Annotation(
            long,
            index if long else None,
            tuple(filter(None, shorts)),
            yes_no(item, where),
        )

    return Example(
        example_id=fields.example_id(record),
        question=question,
        tokens=tokens,
        is_html=is_html,
        candidates=tuple(candidates),
        annotations=gold(record, annotation),
        token_bytes=token_bytes,
        title=optional_text(record, "document_title"),
    )


def gold(record: Record, decode: Callable[[Any, str], Annotation]) -> tuple[Annotation, ...] | None:
    """Returns the gold of every annotator, if any; ``decode`` takes an item and its path."""
    if record.get(ANNOTATIONS) in (None, []):
        return None
    items = get(record, ANNOTATIONS, list)
    return tuple(decode(item, f"{ANNOTATIONS}[{i}]") for i, item in enumerate(items))


def candidate_index(answer: Any, n_candidates: int, where: str) -> int | None:
    """Returns the index of a long answer's candidate, ``None`` if it is -1 or absent."""
    index: int = get(answer, "candidate_index", int, where=where, default=-1)
    if not -1 <= index < n_candidates:
        raise RecordError(f"{where}.candidate_index is {index} of {n_candidates} candidates")
    return index if index >= 0 else None


def yes_no(item: Any, where: str) -> YesNo:
    """Returns the yes/no answer of an annotation, ``YesNo.NONE`` if it is absent."""
    value: str = get(item, "yes_no_answer", str, where=where, default=YesNo.NONE.value)
    if value.upper() not in YesNo.__members__:
        raise RecordError(f"{where}.yes_no_answer must be YES, NO or NONE, found {value!r:.40}")
    return YesNo(value.upper())


def _column(items: list[Any], name: str, kind: type, where: str) -> list[Any]:
    with contextlib.suppress(KeyError, TypeError):  # get() below names the item
        values = [item[name] for item in items]
        if set(map(type, values)) <= {kind}:
            return values
    return [get(item, name, kind, where=f"{where}[{i}]") for i, item in enumerate(items)]


def _tokens(
    items: list[Any], html_name: str, where: str
) -> tuple[list[str], list[bool], IntArray | None]:
    """Returns the tokens, their HTML flags, and ``[n_tokens, 2]`` their bytes if they have some.

    The few words with spaces lose them, but ``"<P> "`` keeps one, since it begins no paragraph.
    """
    words = _column(items, "token", str, where)
    is_html = _column(items, html_name, bool, where)
    tokens = [
        word if html else word.replace(" ", "") for word, html in zip(words, is_html, strict=True)
    ]
    for i in [i for i, t in enumerate(tokens) if t in BLOCK_TYPES and t != words[i]]:
        tokens[i] += " "
    if all(item.get("start_byte") is None for item in items):
        return tokens, is_html, None
    byte_columns = [_column(items, name, int, where) for name in ("start_byte", "end_byte")]
    try:
        return tokens, is_html, np.array(byte_columns, np.int64).T
    except OverflowError as error:
        raise RecordError(f"{where}: a byte offset is beyond 64 bits") from error


def _span(record: Any, n_tokens: int, where: str) -> Span | None:
    """Returns a token span, empty or not, ``None`` if its start and end are -1."""
    start: int = get(record, "start_token", int, where=where)
    end: int = get(record, "end_token", int, where=where)
    if start == end == -1:
        return None
    if not 0 <= start <= end <= n_tokens or start == n_tokens:
        raise RecordError(f"{where} [{start}, {end}) is no span of the {n_tokens} tokens")
    return Span(start, end)
