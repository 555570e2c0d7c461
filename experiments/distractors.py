"""Makes training pages longer by paragraphs of other pages that share words with the question.

Pages of the training data have a few paragraphs, real ones hundreds. On these a model has to reject
paragraphs that only look relevant. So each page gets the paragraphs of all data that BM25 ranks
highest for its question, half of them before the page and half after it. A paragraph that contains
a short answer of the question is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from nq.postprocess.blocks import B, K
from nq.records import FloatArray
from nq.text import terms

Record = dict[str, Any]
SURPLUS = 4
"""Paragraphs that are ranked, relative to those that are added: some are left out."""


def lengthened(records: Sequence[Record], others: Sequence[Record], count: int) -> Iterator[Record]:
    """Yields each record with ``count`` paragraphs of other records (all simplified NQ)."""
    index = Index(list(dict.fromkeys(p for r in others for p in paragraphs(r))))
    for record in records:
        own, answers = set(paragraphs(record)), short_answers(record)
        added = [
            text
            for text in index.best(record["question_text"], SURPLUS * count)
            if text not in own and not any(answer in text for answer in answers)
        ][:count]
        yield inserted(record, before=added[1::2], after=added[::2])


def paragraphs(record: Record) -> list[str]:
    """Returns the top-level blocks of a page, with their tags."""
    tokens = record["document_text"].split(" ")
    return [
        " ".join(tokens[c["start_token"] : c["end_token"]])
        for c in record["long_answer_candidates"]
        if c["top_level"]
    ]


def short_answers(record: Record) -> set[str]:
    """Returns the texts of the annotated short answers."""
    tokens = record["document_text"].split(" ")
    return {
        " ".join(tokens[s["start_token"] : s["end_token"]])
        for a in record["annotations"]
        for s in a["short_answers"]
    }


def inserted(record: Record, before: Sequence[str], after: Sequence[str]) -> Record:
    """Returns the record with blocks inserted before its first candidate and after its page."""
    tokens = record["document_text"].split(" ")
    candidates = record["long_answer_candidates"]
    cut = min((c["start_token"] for c in candidates), default=len(tokens))
    front = [word for text in before for word in text.split(" ")]
    shift = len(front)

    def moved(span: Record) -> Record:
        if span["start_token"] < 0:
            return span
        ends = {name: span[name] + shift for name in ("start_token", "end_token")}
        index = span.get("candidate_index")
        return {
            **span,
            **ends,
            **({} if index is None else {"candidate_index": index + len(before)}),
        }

    end = len(tokens) + shift
    blocks = [*_candidates(before, cut), *map(moved, candidates), *_candidates(after, end)]
    annotations = [
        {
            **a,
            "long_answer": moved(a["long_answer"]),
            "short_answers": [moved(s) for s in a["short_answers"]],
        }
        for a in record["annotations"]
    ]
    return {
        **record,
        "document_text": " ".join([*tokens[:cut], *front, *tokens[cut:], *after]),
        "long_answer_candidates": blocks,
        "annotations": annotations,
    }


def _candidates(texts: Sequence[str], start: int) -> Iterator[Record]:
    """Yields the candidates of consecutive blocks, the first of which begins at ``start``."""
    for text in texts:
        end = start + len(text.split(" "))
        yield {"start_token": start, "end_token": end, "top_level": True}
        start = end


class Index:
    """A BM25 index of many texts; see ``nq.postprocess.blocks`` for the formula.

    Args:
        texts: the texts to rank.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        counts = [Counter(terms(text)) for text in texts]
        self.words: dict[str, int] = {}
        columns = [[self.words.setdefault(w, len(self.words)) for w in c] for c in counts]
        lengths = np.array([sum(c.values()) for c in counts], np.float64)
        rows = np.repeat(np.arange(len(texts)), [len(c) for c in columns])
        tf = np.array([n for c in counts for n in c.values()], np.float64)
        norm = K * (1 - B + B * lengths / max(float(lengths.mean()), 1.0))
        weight = tf * (K + 1) / (tf + norm[rows])
        flat = np.array([i for c in columns for i in c], np.int64)
        shape = (len(texts), len(self.words))
        frequency = np.bincount(flat, minlength=len(self.words))
        self.idf = np.log1p((len(texts) - frequency + 0.5) / (frequency + 0.5))
        self.weights = csr_matrix((weight, (rows, flat)), shape).tocsc()

    def scores(self, question: str) -> FloatArray:
        """Returns the BM25 score of each text, ``[len(texts)]``."""
        known = [self.words[w] for w in set(terms(question)) if w in self.words]
        return np.asarray(self.weights[:, known] @ self.idf[known])

    def best(self, question: str, count: int) -> list[str]:
        """Returns at most ``count`` texts with the highest scores above 0, best first."""
        scores = self.scores(question)
        order = np.argsort(-scores, kind="stable")[:count]
        return [self.texts[i] for i in order.tolist() if scores[i] > 0]
