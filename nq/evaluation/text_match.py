"""Exact match and F1 of answers that are text, by the definition of SQuAD's scorer.

Two texts are compared after normalization: lower case, no ASCII punctuation, no articles (a, an,
the), white space as single blanks. Of several gold answers the best one counts.

    exact match = 1 if the normalized texts are equal, else 0
    F1 = 2PR / (P + R) over their words as multisets; if either has no words, the exact match

Gold answers that are empty after normalization do not count; a question without any other has no
answer, and only the empty answer is right.

Source: Rajpurkar et al. 2016, SQuAD, section 6.1, and Rajpurkar et al. 2018, Know What You Don't
Know, for questions without an answer. Scores are in [0, 1], where SQuAD's scorer prints percent.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


@dataclass(frozen=True, slots=True)
class TextScore:
    """The score of one answer; ``has_answer`` tells whether gold has one."""

    exact_match: bool
    f1: float
    has_answer: bool


def normalize(text: str) -> str:
    """Returns a text as it is compared.

    >>> normalize("The  U.S. Army's (a) band")
    'us armys band'
    """
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def score_text(golds: Sequence[str], answer: str) -> TextScore:
    """Returns the score of an answer, empty for none, against the gold answers, if there are any.

    >>> score_text(["the Eiffel Tower", "Tower"], "Eiffel tower")
    TextScore(exact_match=True, f1=1.0, has_answer=True)
    >>> score_text([], "Paris").f1, score_text([], "").f1
    (0.0, 1.0)
    """
    right = [text for text in map(normalize, golds) if text]
    predicted = normalize(answer)
    f1 = max(_f1(gold.split(), predicted.split()) for gold in right or [""])
    return TextScore(predicted in (right or [""]), f1, bool(right))


def _f1(gold: Sequence[str], given: Sequence[str]) -> float:
    if not gold or not given:
        return float(not gold and not given)
    common = (Counter(gold) & Counter(given)).total()
    return 2 * common / (len(gold) + len(given))


def metrics(scores: Sequence[TextScore]) -> dict[str, float]:
    """Returns the means by key: of all questions and, if some have no answer, of both kinds."""
    if not scores:
        return {}
    answerable = [score for score in scores if score.has_answer]
    others = [score for score in scores if not score.has_answer]
    result = _means("squad_", scores)
    if others:
        result |= _means("squad_answerable_", answerable) | _means("squad_unanswerable_", others)
    return result


def _means(prefix: str, scores: Sequence[TextScore]) -> dict[str, float]:
    n = len(scores)
    return {
        f"{prefix}exact_match": math.fsum(score.exact_match for score in scores) / max(n, 1),
        f"{prefix}f1": math.fsum(score.f1 for score in scores) / max(n, 1),
        f"{prefix}n": n,
    }
