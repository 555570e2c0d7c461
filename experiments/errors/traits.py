"""example -> traits: what kind of question, answer and page it is, in words of a few."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from nq.records import Annotation, Context, Example, Span, YesNo

NONE, OTHER = "none", "other"
SOURCE = "source"
YES_NO_VERBS = (
    *("am", "is", "are", "was", "were", "be", "do", "does", "did", "have", "has", "had"),
    *("can", "could", "may", "might", "must", "shall", "should", "will", "would"),
    *("ain't", "aren't", "isn't", "wasn't", "weren't", "don't", "doesn't", "didn't", "can't"),
)
WORDS = {
    **{word: word for word in ("who", "when", "where", "what", "which", "how", "why")},
    "whom": "who",
    "whose": "who",
}
HOW_MANY, YES_NO_VERB = "how many", "yes/no verb"
LENGTHS = (500, 1000, 2000, 5000, 10000)
FIRST, LATER, CUT, NO_BLOCK = "1st", "11th and later", "beyond the last read", "in no block"
PLACES = {5: "2nd to 5th", 10: "6th to 10th"}
SEVERAL, ONE, YES_OR_NO, LONG_ONLY = "several spans", "one span", "yes or no", "long only"


def _length_names() -> tuple[str, ...]:
    between = (f"{low:,} to {high - 1:,}" for low, high in pairwise(LENGTHS))
    return (f"under {LENGTHS[0]}", *between, f"{LENGTHS[-1]:,} and more")


TRAITS: dict[str, tuple[str, ...]] = {
    "gold answer": (ONE, SEVERAL, YES_OR_NO, LONG_ONLY, NONE),
    "gold block": ("paragraph", "list", "table", OTHER, NONE),
    "place of the gold block": (FIRST, *PLACES.values(), LATER, CUT, NO_BLOCK, NONE),
    "question": (*dict.fromkeys(WORDS.values()), HOW_MANY, YES_NO_VERB, OTHER),
    "tokens of the page": _length_names(),
    SOURCE: (),
}
"""Every trait with its values in the order to show them; sources go by the alphabet."""


def question_word(question: str) -> str:
    """The word that says what is asked for: that in front, else the first such word.

    >>> [question_word(q) for q in ("who's it", "is it when", "in what year", "how many", "moon")]
    ['who', 'yes/no verb', 'what', 'how many', 'other']
    """
    words = re.findall(r"[\w']+", question.lower().replace("\u2019", "'"))
    if words and words[0] in YES_NO_VERBS:
        return YES_NO_VERB
    words = [word.split("'")[0] for word in words]
    asked = next((i for i, word in enumerate(words) if word in WORDS), None)
    if asked is None:
        return OTHER
    if words[asked] == "how" and words[asked + 1 : asked + 2] in (["many"], ["much"]):
        return HOW_MANY
    return WORDS[words[asked]]


def page_length(n_tokens: int) -> str:
    """The bucket of a page of so many tokens.

    >>> [page_length(n) for n in (0, 499, 500, 4999, 10000)]
    ['under 500', 'under 500', '500 to 999', '2,000 to 4,999', '10,000 and more']
    """
    return _length_names()[sum(n_tokens >= bound for bound in LENGTHS)]


def gold_block(annotations: Sequence[Annotation]) -> Span | None:
    """The long answer that most annotators gave, of equal ones the first."""
    found = Counter(a.long for a in annotations if a.long is not None)
    return found.most_common(1)[0][0] if found else None


def gold_answer(annotations: Sequence[Annotation]) -> str:
    """The form of short answer that most annotators gave."""
    found = Counter(
        YES_OR_NO if a.yes_no is not YesNo.NONE else SEVERAL if len(a.shorts) > 1 else ONE
        for a in annotations
        if a.shorts or a.yes_no is not YesNo.NONE
    )
    return found.most_common(1)[0][0] if found else NONE


def place(block: Span, example: Example, every: Sequence[Context], n_read: int) -> str:
    """How far down the page a block stands.

    Args:
        block: the gold's.
        example: whose page it is.
        every: the contexts of the page if none is cut, the null context first.
        n_read: how many of them are read.
    """
    spans = [example.candidates[context.candidate].span for context in every[1:]]
    if block not in spans:
        return NO_BLOCK
    number = spans.index(block) + 1
    if number >= n_read:
        return CUT
    if number == 1:
        return FIRST
    return next((name for last, name in PLACES.items() if number <= last), LATER)


def traits(
    example: Example,
    has_long: bool,
    has_short: bool,
    every: Sequence[Context],
    n_read: int,
    source: str | None = None,
) -> dict[str, str]:
    """The traits of an annotated example, by the names of ``TRAITS``.

    Args:
        example: with its gold.
        has_long, has_short: whether enough annotators gave such an answer.
        every, n_read: see ``place``.
        source: where the record says that it comes from.
    """
    annotations = example.annotations or ()
    block = gold_block(annotations) if has_long else None
    found = {
        "gold answer": gold_answer(annotations) if has_short else LONG_ONLY if block else NONE,
        "gold block": _kind(example, block) if block else NONE,
        "place of the gold block": place(block, example, every, n_read) if block else NONE,
        "question": question_word(example.question),
        "tokens of the page": page_length(len(example.tokens)),
    }
    return found | ({SOURCE: source} if source else {})


def _kind(example: Example, block: Span) -> str:
    return example.block_type(block).lower()
