"""The dialect TyDi QA: plain text in eleven languages, passages and answers as UTF-8 byte offsets.

The text is tokenized, and byte offsets become spans of tokens:

- Words are split at white space, between letters and symbols, and where a number or a word in
  Latin letters meets another script. Scripts without spaces between words (Thai, Chinese,
  Japanese) give one token for each character with its combining marks; Katakana, which spells
  whole names, gives one for each run. The split does not depend on the gold.
- A passage is a paragraph, between the tokens ``<P>`` and ``</P>``, which cover no bytes: the bytes
  of its span are those of the file, and a model sees the markers that it knows.
- An answer that begins or ends inside a token is extended to the whole token.

A passage answer is a long answer, a minimal answer a short one.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from operator import itemgetter
from typing import Any

import numpy as np

from nq.formats.fields import (
    LIMITS,
    Record,
    RecordError,
    example_id,
    get,
    optional_text,
)
from nq.formats.natural_questions import candidate_index, gold, yes_no
from nq.formats.words import span_at
from nq.records import Annotation, Candidate, Example, IntArray, Span

TEXT = "document_plaintext"
START = "plaintext_start_byte"
END = "plaintext_end_byte"
OPEN = "<P>"
CLOSE = "</P>"
# One class for each character: l Latin, d digit, w other letter, k Katakana, s a script without
# spaces, m combining mark or joiner, b white space, o other.
TOKEN = re.compile("[ld][ldm]*|w[wm]*|km*(?:k+m*)*|[som]m*")
_WITHOUT_SPACES = (
    "THAI",
    "LAO",
    "KHMER",
    "MYANMAR",
    "TIBETAN",
    "CJK",
    "HIRAGANA",
    "BOPOMOFO",
    "YI",
    "TAI",
    "JAVANESE",
    "BALINESE",
    "NEW",
)
_JOINERS = ("\u200c", "\u200d")
_WIDER_FROM = (0x80, 0x800, 0x10000)


@cache
def _character_class(char: str) -> str:
    category = unicodedata.category(char)
    script = unicodedata.name(char, "").split(" ")[0]
    if char.isspace() or category[0] == "Z":
        return "b"
    if category[0] == "M" or char in _JOINERS:
        return "m"
    if category == "Nd":
        return "d"
    if category[0] != "L":
        return "o"
    if script.startswith("KATAKANA"):
        return "k"
    return "l" if script == "LATIN" else "s" if script in _WITHOUT_SPACES else "w"


def split(text: str) -> Iterator[tuple[int, int]]:
    """Yields the start and end character of each token of a text.

    >>> [text := "In 1994년에 (서울)", [text[a:b] for a, b in split(text)]][1]
    ['In', '1994', '년에', '(', '서울', ')']
    """
    return (match.span() for match in TOKEN.finditer("".join(map(_character_class, text))))


def decode(record: Record) -> Example:
    """Returns the example in a record of TyDi QA."""
    text = get(record, TEXT, str)
    LIMITS.check(characters=len(text))
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    widths = 1 + sum((codes >= limit).astype(np.int64) for limit in _WIDER_FROM)
    byte_of_char = np.concatenate([[0], np.cumsum(widths)])
    passages = [
        _char_span(byte_of_char, item, f"passage_answer_candidates[{i}]")
        for i, item in enumerate(get(record, "passage_answer_candidates", list))
    ]
    tokens, char_spans, candidates = _tokenize(text, passages)
    words = np.flatnonzero(char_spans[:, 0] < char_spans[:, 1])

    def annotation(item: Any, where: str) -> Annotation:
        passage = get(item, "passage_answer", dict, where=where)
        index = candidate_index(passage, len(candidates), f"{where}.passage_answer")
        answer = yes_no(item, where)
        minimal = get(item, "minimal_answer", dict, where=where)
        where = f"{where}.minimal_answer"
        shorts = tuple[Span, ...]()
        place = [get(minimal, name, int, where=where) for name in (START, END)]
        if place != [-1, -1]:
            start, end = _char_span(byte_of_char, minimal, where)
            short = span_at(char_spans, words, start, end)
            if short is None or start == end:
                raise RecordError(f"{where} [{place[0]}, {place[1]}) contains no word")
            shorts = (short,)
        long = None if index is None else candidates[index].span
        return Annotation(long, index, shorts, answer)

    return Example(
        example_id=example_id(record),
        question=get(record, "question_text", str),
        tokens=tokens,
        is_html=(char_spans[:, 0] == char_spans[:, 1]).tolist(),
        candidates=candidates,
        annotations=gold(record, annotation),
        token_bytes=byte_of_char[char_spans],
        title=optional_text(record, "document_title"),
    )


def _char_span(byte_of_char: IntArray, item: Any, where: str) -> tuple[int, int]:
    """Returns the start and end character of a byte span that is not null."""
    start, end = (get(item, name, int, where=where) for name in (START, END))
    if not 0 <= start <= end <= byte_of_char[-1]:
        raise RecordError(f"{where} [{start}, {end}) is no span of the {byte_of_char[-1]} bytes")
    first, last = np.searchsorted(byte_of_char, (start, end)).tolist()
    for char, byte in ((first, start), (last, end)):
        if byte_of_char[char] != byte:
            raise RecordError(f"{where}: byte {byte} is in the middle of a character")
    return first, last


def _tokenize(
    text: str, passages: Sequence[tuple[int, int]]
) -> tuple[list[str], IntArray, list[Candidate]]:
    """Splits a text into words, with tags around its passages, which may be nested.

    Returns the tokens, their ``[n_tokens, 2]`` start and end characters (equal for a tag), and one
    candidate for each passage.
    """
    # At one character, tags of passages that end come before those that start, and tags of outer
    # passages enclose those of inner ones. An empty passage starts and ends among the starts.
    tags = []
    longest_first = sorted(range(len(passages)), key=lambda n: passages[n][0] - passages[n][1])
    for rank, number in enumerate(longest_first):
        start, end = passages[number]
        close = (end, 1, rank) if start == end else (end, 0, -rank)
        tags += [((start, 1, rank), OPEN, number), (close, CLOSE, number)]
    tokens = list[str]()
    chars = list[tuple[int, int]]()
    position = 0
    places = {OPEN: [0] * len(passages), CLOSE: [0] * len(passages)}
    end_of_text = (len(text), 2, 0), "", 0
    for (char, _, _), tag, number in [
        *sorted(tags, key=itemgetter(0)),
        end_of_text,
    ]:
        LIMITS.check(tokens=len(tokens))
        for start, end in islice(split(text[position:char]), LIMITS.tokens + 1):
            chars.append((position + start, position + end))
            tokens.append(text[position + start : position + end])
        position = char
        if tag:
            places[tag][number] = len(tokens)
            tokens.append(tag)
            chars.append((char, char))
    candidates = [
        Candidate(Span(start, end + 1), True)
        for start, end in zip(places[OPEN], places[CLOSE], strict=True)
    ]
    return tokens or [""], np.array(chars or [(0, 0)], np.int64), candidates
