"""Exact match and F1 of answers that are text, by the rule of SQuAD's scorer or of NQ-open's.

Two texts are compared after normalization: lower case, no ASCII punctuation, no articles (a, an,
the), white space as single blanks. Of several gold answers the best one counts.

    exact match = 1 if the normalized texts are equal, else 0
    F1 = 2PR / (P + R) over their words as multisets; if either has no words, the exact match

To a question without gold answers only the empty answer is right. The rules differ in two points:

==========  ======================================================================================
SQuAD       Beside other gold answers one of which normalization leaves nothing does not count.
NQ-open     Each gold answer counts, "A+" and "*" too. Texts are normalized by NFD first, so that
            composed and decomposed letters are equal.
==========  ======================================================================================

Sources: Rajpurkar et al. 2016, SQuAD, section 6.1, and Rajpurkar et al. 2018, Know What You Don't
Know, for questions without an answer; Min et al. 2021, EfficientQA, whose evaluator is
``orqa/utils/eval_utils.py`` of google-research/language. Scores are in [0, 1], where SQuAD's scorer
prints percent.
"""

import enum
import math
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
TOP = (1, 5, 20, 100)
"""The numbers of passages, the best ones of a retriever, in which answers are looked for."""


Rule = enum.Enum("Rule", ["SQUAD", "NQ_OPEN"])
"""How texts are compared; passages of a retriever have the rule of NQ-open."""


@dataclass(frozen=True, slots=True)
class TextScore:
    """The score of one answer.

    Args:
        has_answer: whether gold has an answer.
        rank: of the first passage of a retriever with the gold answer, 0 if none of them has it;
            ``None`` where no retriever found the page, or gold has no answer.
    """

    exact_match: bool
    f1: float
    has_answer: bool
    rank: int | None = None


def normalize(text: str, rule: Rule = Rule.SQUAD) -> str:
    """Returns a text as it is compared.

    >>> normalize("The  U.S. Army's (a) band")
    'us armys band'
    """
    if rule is Rule.NQ_OPEN:
        text = unicodedata.normalize("NFD", text)
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def score_text(
    golds: Sequence[str],
    answer: str,
    rule: Rule = Rule.SQUAD,
) -> TextScore:
    """Returns the score of an answer, empty for none, against the gold answers, if there are any.

    >>> score_text(["the Eiffel Tower", "Tower"], "Eiffel tower")
    TextScore(exact_match=True, f1=1.0, has_answer=True, rank=None)
    >>> score_text([], "Paris").f1, score_text([], "").f1
    (0.0, 1.0)
    >>> score_text(["Rh+", "A+"], "A+").f1, score_text(["Rh+", "A+"], "A+", Rule.NQ_OPEN).f1
    (0.0, 1.0)
    """
    right = [normalize(gold, rule) for gold in golds]
    if rule is Rule.SQUAD:
        right = [text for text in right if text]
    right = right or [""]
    predicted = normalize(answer, rule)
    f1 = max(_f1(gold.split(), predicted.split()) for gold in right)
    return TextScore(predicted in right, f1, has_answer=any(map(str.strip, golds)))


def _f1(gold: Sequence[str], given: Sequence[str]) -> float:
    if not gold or not given:
        return float(not gold and not given)
    common = (Counter(gold) & Counter(given)).total()
    return 2 * common / (len(gold) + len(given))


def metrics(scores: Sequence[TextScore]) -> dict[str, float]:
    """Returns the means by key: of all questions and, if some have no answer, of both kinds."""
    kinds = {"squad_": scores} if scores else {}
    if others := [score for score in scores if not score.has_answer]:
        kinds["squad_answerable_"] = [score for score in scores if score.has_answer]
        kinds["squad_unanswerable_"] = others
    result = dict[str, float]()
    for prefix, of_kind in kinds.items():
        result[f"{prefix}exact_match"] = _mean([score.exact_match for score in of_kind])
        result[f"{prefix}f1"] = _mean([score.f1 for score in of_kind])
        result[f"{prefix}n"] = len(of_kind)
    return result | _of_retriever([score for score in scores if score.rank is not None])


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / max(len(values), 1)


def _of_retriever(scores: Sequence[TextScore]) -> dict[str, float]:
    """Returns the shares of questions with the answer in the best k passages, and in all of them.

    The exact match is that of the questions whose answer is in a passage.
    Source: the top-k accuracy of Karpukhin et al. 2020, Dense Passage Retrieval.
    """
    if not scores:
        return {}
    there = [score for score in scores if score.rank]
    ranks = [score.rank or math.inf for score in scores]
    return {
        **{f"retrieval_top_{k}": _mean([rank <= k for rank in ranks]) for k in TOP},
        "retrieval_all": len(there) / len(scores),
        "retrieval_n": len(scores),
        "retrieved_exact_match": _mean([score.exact_match for score in there]),
    }
