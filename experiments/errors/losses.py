"""example, prediction, what each stage keeps -> case: right, or lost where.

A gold answer can be lost before anything is decided: its block is not among the contexts, no
window holds it whole, or its start and end are not among the best positions of any window.
What is lost at a stage no later one can find again. An answer that is right was within reach
of all of them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from nq.evaluation import nq_eval
from nq.evaluation.labels import Label
from nq.postprocess.ranking import blocks
from nq.postprocess.spans import Pairs
from nq.records import Annotation, Context, Example, ExampleId, IntArray, Span, YesNo
from nq.runs.scoring import gold_label

MAX_CHARS = 160


class Outcome(enum.StrEnum):
    """What became of a long or a short answer."""

    RIGHT = "right"
    WRONG = "wrong"
    EXTRA = "extra"
    MISSED = "missed"
    NULL = "null"


MEANING = {
    Outcome.RIGHT: "the gold answer",
    Outcome.WRONG: "another answer than gold",
    Outcome.EXTRA: "an answer though gold has none",
    Outcome.MISSED: "no answer though gold has one",
    Outcome.NULL: "none, as gold",
}


class Stage(enum.StrEnum):
    """Where an answer can be lost, in the order of the pipeline."""

    CONTEXTS = "contexts"
    WINDOWS = "windows"
    POSITIONS = "positions"
    DECISION = "decision"


STAGES = tuple(Stage)


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """What each stage keeps of a page.

    Args:
        contexts: the blocks that are read.
        token_map: ``[W, L]`` document token of each position of each window.
        pairs: of the best positions; ``None`` where the scores were not kept.
    """

    contexts: list[Context]
    token_map: IntArray
    pairs: Pairs | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """A long or a short answer against its gold.

    ``lost`` is the stage that lost the gold answer, ``None`` where there is none to lose.
    """

    outcome: Outcome
    score: float
    lost: Stage | None
    gold: str
    answer: str

    @property
    def has_gold(self) -> bool:
        """Whether there is an answer to find."""
        return self.outcome in (Outcome.RIGHT, Outcome.WRONG, Outcome.MISSED)

    @property
    def predicted(self) -> bool:
        """Whether one is given."""
        return self.outcome in (Outcome.RIGHT, Outcome.WRONG, Outcome.EXTRA)


@dataclass(frozen=True, slots=True)
class Case:
    """One example with its traits and what became of its two answers."""

    example_id: ExampleId
    question: str
    traits: Mapping[str, str]
    long: Verdict
    short: Verdict


def judge(example: Example, label: Label) -> tuple[nq_eval.Decision, nq_eval.Decision]:
    """The long and the short decision, as the run was scored: one annotator is enough where
    there is only one."""
    gold = [gold_label(a, example.token_bytes) for a in example.annotations or ()]
    long, short = nq_eval.decisions({0: gold}, {0: label}, one_annotator=True)
    return long[0], short[0]


def outcome(decision: nq_eval.Decision) -> Outcome:
    """The one word for a decision."""
    if decision.correct:
        return Outcome.RIGHT
    if decision.has_gold:
        return Outcome.WRONG if decision.predicted else Outcome.MISSED
    return Outcome.EXTRA if decision.predicted else Outcome.NULL


def verdicts(example: Example, label: Label, kept: Kept) -> tuple[Verdict, Verdict]:
    """The long and the short verdict on the prediction ``label``."""
    long, short = judge(example, label)
    annotations = example.annotations or ()
    longs = [a.long for a in annotations if a.long is not None]
    shorts = [a for a in annotations if a.shorts or a.yes_no is not YesNo.NONE]
    return (
        Verdict(
            outcome(long),
            long.score,
            _lost(long, (_block_kept(span, example, kept) for span in longs)),
            _joined(map(example.text, longs)) if long.has_gold else "",
            _long_text(example, label),
        ),
        Verdict(
            outcome(short),
            short.score,
            _lost(short, (_short_kept(a, example, kept) for a in shorts)),
            _joined(_short_text(example, a) for a in shorts) if short.has_gold else "",
            _answer_text(example, label),
        ),
    )


def _lost(decision: nq_eval.Decision, ways: Iterable[list[bool]]) -> Stage | None:
    """The stage that lost the answer of the annotator that came farthest."""
    if not decision.has_gold or decision.correct:
        return None
    farthest = max(((*flags, False).index(False), len(flags)) for flags in ways)
    return Stage.DECISION if farthest[0] == farthest[1] else STAGES[farthest[0]]


def _block_kept(block: Span, example: Example, kept: Kept) -> list[bool]:
    """For each stage whether it keeps something by which ``block`` can be chosen."""
    read = any(example.candidates[c.candidate].span == block for c in kept.contexts[1:])
    seen = ((kept.token_map >= block.start) & (kept.token_map < block.end)).any()
    return [read, bool(seen)] + (
        [block in _blocks_of(kept.pairs, example)] if kept.pairs is not None else []
    )


def _blocks_of(found: Pairs, example: Example) -> set[Span]:
    """The blocks that the pairs lie in."""
    block = blocks(example)
    first = block[found.start_doc]
    inside = (first >= 0) & (first == block[found.end_doc])
    return {example.candidates[int(i)].span for i in np.unique(first[inside])}


def _span_kept(span: Span, kept: Kept) -> list[bool]:
    """For each stage whether it keeps the first and the last token of ``span`` together."""
    first, last = span.start, span.end - 1
    read = any(first in c.doc and last in c.doc for c in kept.contexts)
    whole = (kept.token_map == first).any(axis=1) & (kept.token_map == last).any(axis=1)
    flags = [read, bool(whole.any())]
    if kept.pairs is not None:
        ends = (kept.pairs.start_doc == first) & (kept.pairs.end_doc == last)
        flags.append(bool(ends.any()))
    return flags


def _short_kept(annotation: Annotation, example: Example, kept: Kept) -> list[bool]:
    """For each stage whether it keeps all spans, or for yes and no the block that tells."""
    n_stages = 2 if kept.pairs is None else 3
    if annotation.yes_no is not YesNo.NONE:
        told = annotation.long
        return _block_kept(told, example, kept) if told else [True] * n_stages
    each = [_span_kept(span, kept) for span in annotation.shorts]
    return [all(flags) for flags in zip(*each, strict=True)]


def _short_text(example: Example, annotation: Annotation) -> str:
    if annotation.yes_no is not YesNo.NONE:
        return str(annotation.yes_no)
    return "; ".join(map(example.text, annotation.shorts))


def _long_text(example: Example, label: Label) -> str:
    return _cut(example.text(Span(*label.long.tokens))) if label.has_long else ""


def _answer_text(example: Example, label: Label) -> str:
    if label.yes_no != "none":
        return label.yes_no.upper()
    return _joined((example.text(Span(*s.tokens)) for s in label.short_spans), "; ")


def _joined(texts: Iterable[str], by: str = " | ") -> str:
    """Different texts as one, each once."""
    return _cut(by.join(dict.fromkeys(texts)))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"
