"""Compares a prediction with gold, finds the stage at which a gold answer is lost, and its traits.

A gold answer can be lost before the decision: its block is not among the contexts, no window
contains the whole answer, or its start and end are not among the best positions of any window. An
answer that is lost at one stage is lost at all later ones. A correct answer is not lost anywhere.

The traits of an example are the kinds of its question, gold answer and page, by name.
"""

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

import numpy as np

from nq.evaluation.nq_eval import Decision, Verdict
from nq.postprocess.blocks import block_of_token
from nq.postprocess.question_words import HOW_MANY, OTHER, WORDS, YES_NO_VERB, question_word
from nq.postprocess.spans import Pairs
from nq.records import Annotation, Context, Example, IntArray, Span, YesNo

KINDS = ("long", "short")
MEANING = {
    Verdict.RIGHT: "the gold answer",
    Verdict.WRONG: "another answer than gold",
    Verdict.EXTRA: "an answer although gold has none",
    Verdict.MISSED: "no answer although gold has one",
    Verdict.NULL: "no answer, as in gold",
}


NONE = "none"
LENGTHS = (500, 1000, 2000, 5000, 10000)
LENGTH_NAMES = (
    f"under {LENGTHS[0]}",
    *(f"{low:,} to {high - 1:,}" for low, high in pairwise(LENGTHS)),
    f"{LENGTHS[-1]:,} and more",
)
UNREAD = "beyond the last read"
NO_BLOCK = "in no block"
POSITIONS = {1: "1st", 5: "2nd to 5th", 10: "6th to 10th", 1 << 30: "11th and later"}
SEVERAL = "several spans"
ONE = "one span"
YES_OR_NO = "yes or no"
LONG_ONLY = "long only"
NOT_RETRIEVED = "not retrieved"

TRAITS: dict[str, tuple[str, ...]] = {
    "gold answer": (ONE, SEVERAL, YES_OR_NO, LONG_ONLY, NOT_RETRIEVED, NONE),
    "gold block": ("paragraph", "list", "table", OTHER, NONE),
    "position of the gold block": (*POSITIONS.values(), UNREAD, NO_BLOCK, NONE),
    "question": (*dict.fromkeys(WORDS.values()), HOW_MANY, YES_NO_VERB, OTHER),
    "tokens of the page": LENGTH_NAMES,
}
"""Maps each trait to its values in the order of display."""


class Stage(enum.StrEnum):
    """The stages at which an answer can be lost, in the order of the pipeline."""

    RETRIEVAL = "retrieval"
    CONTEXTS = "contexts"
    WINDOWS = "windows"
    POSITIONS = "positions"
    DECISION = "decision"


STAGES = tuple(Stage)


@dataclass(frozen=True, slots=True, eq=False)
class StageOutputs:
    """The outputs of the stages before the decision for one example.

    The ``token_map`` ``[W, L]`` has the document token of each position of each window; it is
    ``None`` without the tokenizer, as are the ``pairs`` of the best positions without the scores.
    """

    contexts: Sequence[Context]
    token_map: IntArray | None = None
    pairs: Pairs | None = None


@dataclass(frozen=True, slots=True)
class Judgment(Decision):
    """The decision on a long or a short answer.

    ``lost`` is the stage that lost the gold answer; ``None`` if it is given, or gold has none.
    """

    lost: Stage | None


@dataclass(frozen=True, slots=True)
class Case:
    """The traits of one annotated example, and the judgments of its answers of each kind.

    ``gold`` are its annotations as the evaluation compares them.
    """

    traits: Mapping[str, str]
    judgments: Mapping[str, Judgment]
    gold: Sequence[Annotation] = ()


def judgments(
    example: Example, decisions: Sequence[Decision], stages: StageOutputs
) -> dict[str, Judgment]:
    """Returns the judgments by kind, from the decisions on the long and the short answer."""
    annotations = example.annotations or ()
    longs = [a.long for a in annotations if a.long is not None]
    shorts = [a for a in annotations if a.shorts or a.yes_no is not YesNo.NONE]
    lost = (
        (_lost_block(span, example, stages) for span in longs),
        (_lost_short(annotation, example, stages) for annotation in shorts),
    )

    def latest(decision: Decision, of_annotators: Iterable[Stage]) -> Stage | None:
        if decision.correct or not decision.has_gold:
            return None
        if example.lost_at_retrieval:
            return Stage.RETRIEVAL
        return max(of_annotators, key=STAGES.index, default=Stage.DECISION)

    return {
        kind: Judgment(**asdict(decision), lost=latest(decision, of_annotators))
        for kind, decision, of_annotators in zip(KINDS, decisions, lost, strict=True)
    }


def _lost_block(block: Span, example: Example, stages: StageOutputs) -> Stage:
    """Returns the first stage that keeps no part of ``block``, so that it cannot be chosen."""
    token_map = stages.token_map
    pairs = stages.pairs
    if all(example.candidates[c.candidate].span != block for c in stages.contexts[1:]):
        return Stage.CONTEXTS
    if token_map is not None and not ((token_map >= block.start) & (token_map < block.end)).any():
        return Stage.WINDOWS
    if pairs is not None:
        of_token = block_of_token(example)
        first = of_token[pairs.start_doc]
        inside = (first >= 0) & (first == of_token[pairs.end_doc])
        if block not in {example.candidates[int(i)].span for i in np.unique(first[inside])}:
            return Stage.POSITIONS
    return Stage.DECISION


def _lost_span(span: Span, stages: StageOutputs) -> Stage:
    """Returns the first stage that does not keep both the first and the last token of ``span``."""
    token_map = stages.token_map
    pairs = stages.pairs
    first = span.start
    last = span.end - 1
    if not any(first in c.doc and last in c.doc for c in stages.contexts):
        return Stage.CONTEXTS
    if token_map is not None and not np.any(
        (token_map == first).any(axis=1) & (token_map == last).any(axis=1)
    ):
        return Stage.WINDOWS
    if pairs is not None and not ((pairs.start_doc == first) & (pairs.end_doc == last)).any():
        return Stage.POSITIONS
    return Stage.DECISION


def _lost_short(annotation: Annotation, example: Example, stages: StageOutputs) -> Stage:
    """Returns the first stage that loses one of the spans, or the block of a yes or no."""
    if annotation.yes_no is YesNo.NONE:
        return min((_lost_span(s, stages) for s in annotation.shorts), key=STAGES.index)
    if annotation.long is None:
        return Stage.DECISION
    return _lost_block(annotation.long, example, stages)


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
    if example.lost_at_retrieval:
        form = NOT_RETRIEVED
    return {
        "gold answer": form if has_short else LONG_ONLY if block else NONE,
        "gold block": example.block_type(block).lower() if block else NONE,
        "position of the gold block": (
            block_position(block, example, all_contexts, n_read) if block else NONE
        ),
        "question": question_word(example.question),
        "tokens of the page": LENGTH_NAMES[sum(len(example.tokens) >= n for n in LENGTHS)],
    }
