"""The traits of examples: kinds of questions, gold answers and pages."""

import pytest

from nq.config import WindowConfig
from nq.preprocess.contexts import contexts
from nq.records import Annotation, Span, YesNo
from nq.report.traits import SOURCE, TRAITS, question_word, traits
from tests.report.example_cases import FIRST, SECOND, THIRD, annotation, page

ALL_CONTEXTS = contexts(page(), WindowConfig())
ONE, TWO = (Span(9, 10),), (Span(9, 10), Span(11, 12))


@pytest.mark.parametrize(
    ("question", "word"),
    [
        ("who wrote it", "who"),
        ("Whose song is it", "who"),
        ("what's new", "what"),
        ("what\u2019s new", "what"),
        ("how much is it", "how many"),
        ("tell me how many there are", "how many"),
        ("how did it end", "how"),
        ("much ado about how", "how"),
        ("in which year", "which"),
        ("is it known who won", "yes/no verb"),
        ("can't it swim", "yes/no verb"),
        ("the moon is", "other"),
        ("whoever somewhat", "other"),
        ("", "other"),
        ("???", "other"),
    ],
)
def test_question_words(question: str, word: str) -> None:
    assert question_word(question) == word
    assert word in TRAITS["question"]


@pytest.mark.parametrize(
    ("annotations", "answer", "block", "position"),
    [
        ([annotation(FIRST, *ONE)], "one span", "paragraph", "1st"),
        ([annotation(SECOND, *TWO)], "several spans", "list", "2nd to 5th"),
        ([annotation(SECOND, yes_no=YesNo.YES)], "yes or no", "list", "2nd to 5th"),
        ([annotation(THIRD)], "long only", "table", "beyond the last read"),
        ([annotation(Span(1, 3))], "long only", "other", "in no block"),
        ([annotation(None)], "none", "none", "none"),
        (
            [annotation(FIRST, *TWO), annotation(SECOND, *ONE), annotation(SECOND, *ONE)],
            *("one span", "list", "2nd to 5th"),
        ),
    ],
)
def test_traits(annotations: list[Annotation], answer: str, block: str, position: str) -> None:
    has_long = any(a.long for a in annotations)
    has_short = any(a.shorts or a.yes_no != "NONE" for a in annotations)
    values = traits(page(*annotations), has_long, has_short, ALL_CONTEXTS, n_read=3, source="dev")
    assert (values["gold answer"], values["gold block"]) == (answer, block)
    assert values["position of the gold block"] == position
    assert values[SOURCE] == "dev"
    assert all(values[name] in known for name, known in TRAITS.items() if known)


def test_gold_of_too_few_annotators_is_none() -> None:
    values = traits(page(annotation(FIRST, *ONE)), False, False, ALL_CONTEXTS, 4)
    assert {values[name] for name in values if "gold" in name} == {"none"}
    assert SOURCE not in values
