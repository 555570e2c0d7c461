"""What training wants found in a page."""

from itertools import pairwise

import pytest
from hypothesis import given

from nq.config import WindowConfig
from nq.preprocess.contexts import contexts, words
from nq.preprocess.targets import LIST_GAP, NO_TARGET, chosen_annotation, target
from nq.records import Annotation, AnswerType, Example, Span, Target, YesNo
from tests.preprocess.synthetic_examples import few, page, pages

OURS = WindowConfig()
BERT_JOINT = WindowConfig(compat="bert-joint")
NOBODY = Annotation(None, None, (), YesNo.NONE)
PAGE = "Ice <P> ice is cold </P> <Ul> <Li> it floats </Li> <Li> it melts </Li> </Ul>"
#       0   1   2   3  4    5    6    7    8  9      10    11   12 13    14    15


def wanted(example: Example, config: WindowConfig = OURS) -> Target | None:
    return target(example, contexts(example, config), config)


def found(example: Example, config: WindowConfig = OURS) -> tuple[AnswerType, list[str]]:
    """The target's type and words."""
    it = wanted(example, config)
    assert it is not None
    sequence = words(contexts(example, config), config)
    return it.kind, sequence.words[it.first : it.last + 1]


@pytest.mark.parametrize(
    ("yes_no", "kind"),
    [("YES", AnswerType.YES), ("NO", AnswerType.NO), ("NONE", AnswerType.LONG)],
)
def test_without_a_short_answer_the_target_is_the_block(yes_no: str, kind: AnswerType) -> None:
    assert found(page(PAGE, long=0, yes_no=yes_no)) == (kind, ["ice", "is", "cold"])


@pytest.mark.parametrize("config", [OURS, BERT_JOINT])
@pytest.mark.parametrize(
    "example",
    [
        page(PAGE),
        page(PAGE, long=None),
        page(PAGE, long=None, yes_no="YES"),
        page(PAGE, long=2, shorts=[(8, 9)]),  # a nested candidate
        page(PAGE, long=3),
        page(PAGE, long=1, shorts=[(7, 8)]),  # nothing but a tag
        page(PAGE, long=0, shorts=[(3, 9)]),  # beyond the block
        page(PAGE, long=0, shorts=[(0, 3)]),
        page("<P> </P> <P> x </P>", long=0),  # a block that is not read
    ],
)
def test_no_target(example: Example, config: WindowConfig) -> None:
    assert wanted(example, config) == NO_TARGET


def test_the_annotation_that_is_followed() -> None:
    late_short = Annotation(Span(6, 16), 1, (Span(8, 9),), YesNo.NONE)
    early_long = Annotation(Span(1, 6), 0, (), YesNo.YES)
    early_short = Annotation(Span(1, 6), 0, (Span(2, 3),), YesNo.NONE)
    other_short = Annotation(Span(1, 6), 0, (Span(4, 5),), YesNo.NONE)
    nowhere = Annotation(Span(1, 6), None, (Span(4, 5),), YesNo.NONE)
    assert chosen_annotation([NOBODY, nowhere]) is None
    assert chosen_annotation([NOBODY, early_long]) is early_long
    assert chosen_annotation([early_long, late_short]) is late_short
    assert chosen_annotation([late_short, early_long, early_short]) is early_short
    assert chosen_annotation([other_short, early_short]) is other_short


@few
@given(pages())
def test_a_target_is_what_the_annotation_says(example: Example) -> None:
    it = wanted(example)
    chosen = chosen_annotation(example.annotations or ())
    assert it is not None
    if it == NO_TARGET:
        return
    assert chosen is not None
    assert chosen.candidate is not None
    assert example.candidates[chosen.candidate].top_level
    span = example.candidates[chosen.candidate].span
    if chosen.shorts:
        covered = sorted({i for short in chosen.shorts for i in range(short.start, short.end)})
        gaps = [b - a - 1 for a, b in pairwise(covered)]
        last = next((i for i, gap in enumerate(gaps) if gap > LIST_GAP), len(gaps))
        span = Span(covered[0], covered[last] + 1)
    gold = [i for i in range(span.start, span.end) if not example.is_html[i]]
    assert words(contexts(example, OURS), OURS).doc[it.first : it.last + 1] == gold
