"""Compares a prediction with gold, and finds the stage at which a gold answer is lost.

A gold answer can be lost before the decision: its block is not among the contexts, no window
contains the whole answer, or its start and end are not among the best positions of any window. An
answer that is lost at one stage is lost at all later ones. A correct answer is not lost anywhere.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from nq.evaluation.labels import Label
from nq.evaluation.nq_eval import Decision, Outcome
from nq.postprocess.blocks import block_of_token
from nq.postprocess.spans import Pairs
from nq.records import Annotation, Context, Example, IntArray, Span, YesNo

KINDS = ("long", "short")
MEANING = {
    Outcome.RIGHT: "the gold answer",
    Outcome.WRONG: "another answer than gold",
    Outcome.EXTRA: "an answer although gold has none",
    Outcome.MISSED: "no answer although gold has one",
    Outcome.NULL: "no answer, as in gold",
}


class Stage(enum.StrEnum):
    """The stages at which an answer can be lost, in the order of the pipeline."""

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
    gold: Sequence[Label] = ()


def judgments(
    example: Example, decisions: Sequence[Decision], stages: StageOutputs
) -> dict[str, Judgment]:
    """Returns the judgments by kind, from the decisions on the long and the short answer."""
    annotations = example.annotations or ()
    longs = [a.long for a in annotations if a.long is not None]
    shorts = [a for a in annotations if a.shorts or a.yes_no is not YesNo.NONE]
    kept = (
        (_keeps_block(span, example, stages) for span in longs),
        (_keeps_short(annotation, example, stages) for annotation in shorts),
    )
    return {
        kind: Judgment(**asdict(decision), lost=_lost(decision, flags))
        for kind, decision, flags in zip(KINDS, decisions, kept, strict=True)
    }


def _lost(decision: Decision, kept: Iterable[Mapping[Stage, bool]]) -> Stage | None:
    """Returns the latest of the stages at which the annotators' answers were lost.

    ``kept`` tells for each annotator whether each known stage keeps the answer.
    """
    if not decision.has_gold or decision.correct:
        return None
    lost = (
        next((stage for stage, keeps in flags.items() if not keeps), Stage.DECISION)
        for flags in kept
    )
    return max(lost, key=STAGES.index)


def _keeps_block(block: Span, example: Example, stages: StageOutputs) -> dict[Stage, bool]:
    """Returns for each stage whether it keeps a part of ``block``, so that it can be chosen."""
    read = any(example.candidates[c.candidate].span == block for c in stages.contexts[1:])
    flags, token_map = {Stage.CONTEXTS: read}, stages.token_map
    if token_map is not None:
        in_window = (token_map >= block.start) & (token_map < block.end)
        flags[Stage.WINDOWS] = bool(in_window.any())
    if stages.pairs is not None:
        of_token = block_of_token(example)
        first = of_token[stages.pairs.start_doc]
        inside = (first >= 0) & (first == of_token[stages.pairs.end_doc])
        blocks = {example.candidates[int(i)].span for i in np.unique(first[inside])}
        flags[Stage.POSITIONS] = block in blocks
    return flags


def _keeps_span(span: Span, stages: StageOutputs) -> dict[Stage, bool]:
    """Returns for each stage whether it keeps the first and the last token of ``span`` together."""
    first, last = span.start, span.end - 1
    read = any(first in c.doc and last in c.doc for c in stages.contexts)
    flags, token_map = {Stage.CONTEXTS: read}, stages.token_map
    if token_map is not None:
        whole = (token_map == first).any(axis=1) & (token_map == last).any(axis=1)
        flags[Stage.WINDOWS] = bool(whole.any())
    if stages.pairs is not None:
        same = (stages.pairs.start_doc == first) & (stages.pairs.end_doc == last)
        flags[Stage.POSITIONS] = bool(same.any())
    return flags


def _keeps_short(
    annotation: Annotation, example: Example, stages: StageOutputs
) -> dict[Stage, bool]:
    """Returns for each stage whether it keeps all spans, or the block of a yes or no."""
    if annotation.yes_no is not YesNo.NONE:
        return {} if annotation.long is None else _keeps_block(annotation.long, example, stages)
    spans = [_keeps_span(span, stages) for span in annotation.shorts]
    return {stage: all(flags[stage] for flags in spans) for stage in spans[0]}
