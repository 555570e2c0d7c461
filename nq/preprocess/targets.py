"""example -> target: what training wants found, from the annotations (SPEC of BERT-Joint).

The first annotation by candidate index that has short answers, else the first; several
short answers merge to one span; yes and no count only without short answers; without any
the target is the whole block.
"""

from __future__ import annotations

from collections.abc import Sequence

from nq.preprocess.contexts import Words
from nq.records import Annotation, AnswerType, Context, Example, Span, Target, YesNo

NO_TARGET = Target(AnswerType.UNKNOWN, 0, 0)
_YES_NO = {YesNo.YES: AnswerType.YES, YesNo.NO: AnswerType.NO}


def chosen_annotation(annotations: Sequence[Annotation]) -> Annotation | None:
    """The annotation that training follows, ``None`` where nobody gave a long answer."""
    answered = [a for a in annotations if a.long is not None and a.candidate is not None]
    answered.sort(key=lambda a: a.candidate or 0)
    return next((a for a in answered if a.shorts), answered[0] if answered else None)


def target(example: Example, found: Sequence[Context], words: Words) -> Target:
    """The target as a range of words; ``NO_TARGET`` if the contexts do not hold the answer.

    An answer in a nested candidate or beyond the last context becomes no target (the
    original labels a wrong place).
    """
    annotation = chosen_annotation(example.annotations or ())
    if annotation is None:
        return NO_TARGET
    first = 0
    for context in found:
        first += len(context.markers)
        if context.candidate == annotation.candidate:
            return _within(context, first, annotation)
        first += len(context.words)
    return NO_TARGET


def _within(context: Context, first: int, annotation: Annotation) -> Target:
    """The target inside the context whose first word is word ``first``."""
    if not annotation.shorts:
        kind = _YES_NO.get(annotation.yes_no, AnswerType.LONG)
        return Target(kind, first, first + len(context.words) - 1)
    span = Span(annotation.shorts[0].start, annotation.shorts[-1].end)
    inside = [i for i, doc in enumerate(context.doc) if span.start <= doc < span.end]
    whole = context.doc[0] <= span.start and span.end <= context.doc[-1] + 1
    if not inside or not whole:
        return NO_TARGET
    return Target(AnswerType.SHORT, first + inside[0], first + inside[-1])
