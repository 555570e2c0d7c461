"""example -> contexts -> words: which blocks of a page are read, and with which markers.

Rules of BERT-Joint (google-research/language, ``bert_joint/run_nq.py``): the null
context first, then the top-level blocks with text, 48 in all. Each block is introduced
by two marker words, ``[ContextId=i] [Type=n]``, so that the page becomes one sequence

    [ContextId=-1] [NoLongAnswer] [ContextId=0] [Paragraph=1] The flow …
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from nq.config import WindowConfig
from nq.records import Candidate, Context, Example

NULL_CONTEXT = Context(-1, "[NoLongAnswer]", (), ())
_ORIGINAL_BLANKS = re.compile("[ \t\r\n\u202f]+")


@dataclass(frozen=True, slots=True)
class Words:
    """A page as one word sequence.

    Args:
        words: markers and words of all contexts, in order.
        doc: the document token of each word, -1 for markers.
        markers: where in ``words`` our own markers stand; text that spells one is text.
    """

    words: list[str]
    doc: list[int]
    markers: list[int]


def _is_html(example: Example, config: WindowConfig) -> list[bool]:
    if config.compat == "kisialiou":  # the port takes every token with a "<" for a tag
        return ["<" in token for token in example.tokens]
    return list(example.is_html)


def _text(example: Example, candidate: Candidate, html: list[bool]) -> tuple[list[str], list[int]]:
    span = range(candidate.span.start, candidate.span.end)
    doc = [i for i in span if not html[i]]
    tokens = example.tokens
    return [tokens[i] for i in doc], doc


def contexts(example: Example, config: WindowConfig) -> list[Context]:
    """The null context, then the top-level candidates with text, at most ``max_contexts``.

    The counter of a type stops at ``max_position`` (``[Paragraph=50]`` may come twice).
    """
    found = [NULL_CONTEXT]
    html = _is_html(example, config)
    counts: Counter[str] = Counter()
    for index, candidate in enumerate(example.candidates):
        if len(found) >= config.max_contexts:
            break
        if not candidate.top_level:
            continue
        words, doc = _text(example, candidate, html)
        if not any(word.strip() for word in words):
            continue
        kind = example.block_type(candidate.span)
        counts[kind] = min(counts[kind] + 1, config.max_position)
        found.append(Context(index, f"[{kind}={counts[kind]}]", words, doc))
    return found


def words(found: list[Context], config: WindowConfig) -> Words:
    """Joins contexts to one word sequence: one word, one entry in the map.

    In the compatibility modes words are split again at blanks, tabs, line ends and U+202F,
    as the originals do, and the map is then looked up by the new word number: on such
    pages it is off by the number of extra words, exactly as theirs is.
    """
    sequence: list[str] = []
    doc: list[int] = []
    markers: list[int] = []
    for context in found:
        markers += [len(sequence), len(sequence) + 1]
        sequence += [*context.markers, *context.words]
        doc += [-1, -1, *context.doc]
    if config.compat == "ours":
        return Words(sequence, doc, markers)
    again = split_again(sequence)
    doc += [-1] * (len(again) - len(doc))  # where the originals end in an IndexError
    return Words(again, doc[: len(again)], [])


def split_again(words: Sequence[str]) -> list[str]:
    """The words as the originals see them, who join them and split at more than blanks.

    >>> split_again(["10\u202fkm", "", "\tnorth"])
    ['10', 'km', 'north']
    """
    return [word for word in _ORIGINAL_BLANKS.split(" ".join(words)) if word]
