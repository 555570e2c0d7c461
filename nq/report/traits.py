"""Traits of an example: the kind of question, of gold answer and of page, by name."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from nq.postprocess.question_words import HOW_MANY, OTHER, WORDS, YES_NO_VERB, question_word
from nq.records import Context, Example, Span, YesNo

NONE = "none"
LENGTHS = (500, 1000, 2000, 5000, 10000)
LENGTH_NAMES = (
    f"under {LENGTHS[0]}",
    *(f"{low:,} to {high - 1:,}" for low, high in pairwise(LENGTHS)),
    f"{LENGTHS[-1]:,} and more",
)
UNREAD, NO_BLOCK = "beyond the last read", "in no block"
POSITIONS = {1: "1st", 5: "2nd to 5th", 10: "6th to 10th", 1 << 30: "11th and later"}
SEVERAL, ONE, YES_OR_NO, LONG_ONLY = "several spans", "one span", "yes or no", "long only"

TRAITS: dict[str, tuple[str, ...]] = {
    "gold answer": (ONE, SEVERAL, YES_OR_NO, LONG_ONLY, NONE),
    "gold block": ("paragraph", "list", "table", OTHER, NONE),
    "position of the gold block": (*POSITIONS.values(), UNREAD, NO_BLOCK, NONE),
    "question": (*dict.fromkeys(WORDS.values()), HOW_MANY, YES_NO_VERB, OTHER),
    "tokens of the page": LENGTH_NAMES,
}
"""Maps each trait to its values in the order of display."""


def block_position(
    block: Span, example: Example, all_contexts: Sequence[Context], n_read: int
) -> str:
    """Classifies a block's position; the model read the first ``n_read`` contexts."""
    # the first context is the null context
    spans = [example.candidates[context.candidate].span for context in all_contexts[1:]]
    if block not in spans:
        return NO_BLOCK
    number = spans.index(block) + 1
    if number >= n_read:
        return UNREAD
    return next(name for last, name in POSITIONS.items() if number <= last)


def traits(
    example: Example, has_long: bool, has_short: bool, all_contexts: Sequence[Context], n_read: int
) -> dict[str, str]:
    """Returns the traits of an annotated example, by the names in ``TRAITS``.

    The gold block and the form of the short answer are what most annotators gave, of equally
    frequent ones the first. ``has_long`` and ``has_short`` tell whether enough annotators gave such
    an answer.
    """
    annotations = example.annotations or ()
    longs = Counter(a.long for a in annotations if a.long is not None)
    forms = Counter(
        YES_OR_NO if a.yes_no is not YesNo.NONE else SEVERAL if len(a.shorts) > 1 else ONE
        for a in annotations
        if a.shorts or a.yes_no is not YesNo.NONE
    )
    block = longs.most_common(1)[0][0] if has_long and longs else None
    form = forms.most_common(1)[0][0] if forms else NONE
    return {
        "gold answer": form if has_short else LONG_ONLY if block else NONE,
        "gold block": example.block_type(block).lower() if block else NONE,
        "position of the gold block": (
            block_position(block, example, all_contexts, n_read) if block else NONE
        ),
        "question": question_word(example.question),
        "tokens of the page": LENGTH_NAMES[sum(len(example.tokens) >= n for n in LENGTHS)],
    }
