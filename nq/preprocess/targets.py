"""example -> target: what training wants found, from the annotations (SPEC of BERT-Joint).

The first annotation by candidate index that has short answers, else the first; several
short answers merge to one span, from the first in the file to the last; yes and no count only
without short answers; without any the target is the whole block.

Ours differs where several short answers lie far apart: merged, they were a span that nobody
would answer. It takes the first of the page, with those that follow it as in a list.
"""

from __future__ import annotations

from collections.abc import Sequence

from nq.config import WindowConfig
from nq.preprocess.contexts import split_again
from nq.records import Annotation, AnswerType, Context, Example, Span, Target, YesNo

LIST_GAP = 2
"""Words between two items of a list at most: a comma and ``and``."""

NO_TARGET = Target(AnswerType.UNKNOWN, 0, 0)
_YES_NO = {YesNo.YES: AnswerType.YES, YesNo.NO: AnswerType.NO}


def chosen_annotation(annotations: Sequence[Annotation]) -> Annotation | None:
    """The annotation that training follows, ``None`` where nobody gave a long answer."""
    answered = [a for a in annotations if a.long is not None and a.candidate is not None]
    answered.sort(key=lambda a: a.candidate or 0)
    return next((a for a in answered if a.shorts), answered[0] if answered else None)


def target(example: Example, found: Sequence[Context], config: WindowConfig) -> Target | None:
    """The target as a range of words; ``NO_TARGET`` if the contexts do not hold the answer.

    An answer in a nested candidate or beyond the last context becomes no target in every
    mode (the originals label a wrong place). ``None`` is a page to leave out of the
    training: one that nobody annotated, or in the originals' modes one that they leave out.
    """
    ours = config.compat == "ours"
    if ours and example.annotations is None:
        return None
    annotation = chosen_annotation(example.annotations or ())
    if annotation is None:
        return NO_TARGET
    short = _short(annotation.shorts, ours)
    first = 0
    for context in found:
        first += len(context.markers)
        if context.candidate == annotation.candidate:
            block = example.candidates[context.candidate].span
            wanted = _within(block, context, first, short, annotation.yes_no)
            return wanted if ours else _placed_again(wanted, found)
        first += len(context.words)
    return NO_TARGET


def _within(block: Span, context: Context, first: int, short: Span | None, yes_no: YesNo) -> Target:
    """The target inside the context of ``block``, whose first word is word ``first``."""
    if short is None:
        kind = _YES_NO.get(yes_no, AnswerType.LONG)
        return Target(kind, first, first + len(context.words) - 1)
    inside = [i for i, doc in enumerate(context.doc) if short.start <= doc < short.end]
    if not inside or not block.contains(short):
        return NO_TARGET
    return Target(AnswerType.SHORT, first + inside[0], first + inside[-1])


def _short(shorts: Sequence[Span], ours: bool) -> Span | None:
    """The one span that several short answers become."""
    if not shorts:
        return None
    if not ours:
        return Span(shorts[0].start, shorts[-1].end)
    first = min(shorts)
    end = first.end
    for short in sorted(shorts):
        if short.start - end <= LIST_GAP:
            end = max(end, short.end)
    return Span(first.start, end)


def _placed_again(wanted: Target, found: Sequence[Context]) -> Target | None:
    """The target among the words as the originals split them again.

    They look up the word under the first and the last character, which is the word before
    where that character is a blank, and skip the page if the words, joined, do not spell
    the answer: that is, if it has blanks inside at which they do not split, such as U+00A0.
    """
    words = [word for context in found for word in (*context.markers, *context.words)]
    answer = " ".join(words[wanted.first : wanted.last + 1])
    again = split_again(words[: wanted.last + 1])
    start = len(split_again(words[: wanted.first])) - (not split_again([answer[:1]]))
    if " ".join(answer.split()) not in " ".join(again[start:]):
        return None
    return Target(wanted.kind, start, len(again) - 1)
