"""example -> target: the span of words that training labels, from the annotations.

The rules of BERT-Joint: of the annotations by candidate index the first with short
answers, else the first; several short answers are merged to one span, from the first in the file
to the last; yes and no count only without short answers; without any of these the target is the
whole block.

Ours differs where several short answers are far apart, because the merged span is no answer: it
takes the first short answer of the page, with those that follow it as in a list.
"""

from collections.abc import Sequence

from nq.config import WindowConfig
from nq.preprocess.contexts import split_again
from nq.records import Annotation, AnswerType, Context, Example, Span, Target, YesNo

LIST_GAP = 2
"""Words between two items of a list at most: a comma and ``and``."""

NO_TARGET = Target(AnswerType.UNKNOWN, 0, 0)
_YES_NO = {YesNo.YES: AnswerType.YES, YesNo.NO: AnswerType.NO}


def chosen_annotation(annotations: Sequence[Annotation]) -> Annotation | None:
    """Returns the annotation that training follows, ``None`` where none has a long answer."""
    answered = [a for a in annotations if a.long is not None and a.candidate is not None]
    return min(answered, key=lambda a: (not a.shorts, a.candidate or 0), default=None)


def target(example: Example, contexts: Sequence[Context], config: WindowConfig) -> Target | None:
    """Returns the target as a range of words, ``None`` for a page that training leaves out.

    An answer in a nested candidate or beyond the last context is ``NO_TARGET`` in every mode (the
    originals label wrong words).
    """
    if example.annotations is None and not config.switches.keep_unannotated:
        return None
    annotation = chosen_annotation(example.annotations or ())
    if annotation is None:
        return NO_TARGET
    short = _merged(annotation.shorts, config)
    first = 0
    for context in contexts:
        first += len(context.markers)
        if context.candidate == annotation.candidate:
            block = example.candidates[context.candidate].span
            words = _words_of_target(block, context, first, short, annotation.yes_no)
            again = config.switches.split_words_again
            return _after_splitting(words, contexts) if again else words
        first += len(context.words)
    return NO_TARGET


def _words_of_target(
    block: Span, context: Context, first: int, short: Span | None, yes_no: YesNo
) -> Target:
    """Returns the target's range of words in a context whose first word is number ``first``."""
    if short is None:
        kind = _YES_NO.get(yes_no, AnswerType.LONG)
        return Target(kind, first, first + len(context.words) - 1)
    inside = [i for i, doc in enumerate(context.doc) if short.start <= doc < short.end]
    if not inside or not block.contains(short):
        return NO_TARGET
    return Target(AnswerType.SHORT, first + inside[0], first + inside[-1])


def _merged(shorts: Sequence[Span], config: WindowConfig) -> Span | None:
    """Returns the span that stands for several short answers."""
    if not shorts:
        return None
    if config.switches.merge_all_short_answers:
        return Span(shorts[0].start, shorts[-1].end)
    first, *others = sorted(shorts)
    end = first.end
    for short in others:
        if short.start - end <= LIST_GAP:
            end = max(end, short.end)
    return Span(first.start, end)


def _after_splitting(target: Target, contexts: Sequence[Context]) -> Target | None:
    """Returns the target among the words as the originals split them again.

    They look up the word under the first and the last character, which is the previous word where
    that character is a blank, and skip the page if the words, joined, do not spell the answer:
    that is, if it has blanks inside at which they do not split, such as U+00A0.
    """
    words = [word for context in contexts for word in (*context.markers, *context.words)]
    answer = " ".join(words[target.first : target.last + 1])
    again = split_again(words[: target.last + 1])
    start = len(split_again(words[: target.first])) - (not split_again([answer[:1]]))
    if " ".join(answer.split()) not in " ".join(again[start:]):
        return None
    return Target(target.kind, start, len(again) - 1)
