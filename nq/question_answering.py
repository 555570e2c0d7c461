"""The inputs and outputs of the question-answering pipeline that transformers 4 had."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from nq.config import DecisionConfig
from nq.errors import check_argument
from nq.formats.documents import page_from_text
from nq.postprocess.ranking import rank
from nq.records import Example, Scores

MAX_ANSWER_LEN = 15
"""The default of the pipeline of transformers, in pieces."""

Asked = str | Mapping[str, str] | list[str] | list[dict[str, str]]
SpanAnswer = dict[str, Any]
"""``score``, ``answer``, and ``start`` and ``end``, its characters in the context."""


def examples_of(question: Asked, context: str | list[str] | None) -> list[Example]:
    """Returns the examples of questions and contexts, which may be dicts of both.

    Raises:
        ValueError: there is no context, their numbers differ, or one is empty or not a text.
    """
    questions = question if isinstance(question, list) else [question]
    contexts = context if isinstance(context, list) else [context] * len(questions)
    check_argument(
        len(questions) == len(contexts), "context", context, f"one, or {len(questions)} in a list"
    )
    pairs: list[tuple[Any, Any]] = [
        (item.get("question"), item.get("context")) if isinstance(item, Mapping) else (item, text)
        for item, text in zip(questions, contexts, strict=True)
    ]
    for pair in pairs:
        for name, text in zip(("question", "context"), pair, strict=True):
            is_text = isinstance(text, str) and bool(text.strip())
            check_argument(is_text, name, text, "a text that is not empty")
    pages = {text: page_from_text(text, "the context") for _, text in pairs}
    return [pages[text].with_question(item) for item, text in pairs]


def span_answers(
    scored: Iterable[tuple[Example, Scores]],
    decision: DecisionConfig,
    top_k: int,
    handle_impossible_answer: bool,
    max_answer_len: int,
) -> Iterator[list[SpanAnswer]]:
    """Yields the ``top_k`` most probable short answers to each example, best first.

    An empty answer, if it is possible, comes first where the best one is less probable than the
    threshold of the decision; its score is the probability that the best one is wrong.
    """
    config = replace(decision, max_answer_length=max_answer_len)
    for example, scores in scored:
        answers: list[SpanAnswer] = []
        for span, score in rank(example, scores, config).short_spans(top_k):
            place = example.original and example.original.place(span)
            if place:
                start, end = place
                text = example.text(span)
                answers.append({"score": score, "start": start, "end": end, "answer": text})
        best = answers[0]["score"] if answers else 0.0
        if handle_impossible_answer or not answers:
            score = 1 - best if handle_impossible_answer else 0.0
            index = 0 if best < config.short_threshold else 1
            answers.insert(index, {"score": score, "start": 0, "end": 0, "answer": ""})
        yield answers[:top_k]
