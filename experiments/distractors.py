"""Longer pages to train on: paragraphs of other pages that share words with the question.

Pages of the training data are a few paragraphs long, real ones hundreds. What a model has to
learn on these is to say "not here" of a paragraph that seems to fit; so each question gets the
paragraphs of all the data that BM25 ranks highest for it, half of them in front of its page and
half behind. A paragraph that spells a short answer of the question is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from nq.postprocess.bm25 import WORD, B, K
from nq.records import FloatArray

Record = dict[str, Any]
MANY = 4


def lengthened(records: Sequence[Record], others: Sequence[Record], count: int) -> Iterator[Record]:
    """Each of ``records`` with ``count`` paragraphs of ``others`` (simplified NQ records)."""
    index = Index(list(dict.fromkeys(p for r in others for p in paragraphs(r))))
    for record in records:
        own, answers = set(paragraphs(record)), short_answers(record)
        found = [
            text
            for text in index.best(record["question_text"], MANY * count)
            if text not in own and not any(answer in text for answer in answers)
        ][:count]
        yield inserted(record, found[1::2], found[::2])


def paragraphs(record: Record) -> list[str]:
    """The top-level blocks of a page, tags and all."""
    tokens = record["document_text"].split(" ")
    return [
        " ".join(tokens[c["start_token"] : c["end_token"]])
        for c in record["long_answer_candidates"]
        if c["top_level"]
    ]


def short_answers(record: Record) -> set[str]:
    """The texts that annotators gave as short answers."""
    tokens = record["document_text"].split(" ")
    return {
        " ".join(tokens[s["start_token"] : s["end_token"]])
        for a in record["annotations"]
        for s in a["short_answers"]
    }


def inserted(record: Record, before: Sequence[str], behind: Sequence[str]) -> Record:
    """The record with blocks before its first candidate and behind its page."""
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

    blocks = [*_placed(before, cut), *map(moved, candidates), *_placed(behind, len(tokens) + shift)]
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
        "document_text": " ".join([*tokens[:cut], *front, *tokens[cut:], *behind]),
        "long_answer_candidates": blocks,
        "annotations": annotations,
    }


def _placed(texts: Sequence[str], start: int) -> Iterator[Record]:
    for text in texts:
        end = start + len(text.split(" "))
        yield {"start_token": start, "end_token": end, "top_level": True}
        start = end


class Index:
    """BM25 over many texts; see ``nq.postprocess.bm25`` for the formula."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        counts = [Counter(WORD.findall(text.lower())) for text in texts]
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
        """``[len(texts)]``."""
        known = [self.words[w] for w in set(WORD.findall(question.lower())) if w in self.words]
        return np.asarray(self.weights[:, known] @ self.idf[known])

    def best(self, question: str, count: int) -> list[str]:
        """The texts that score highest, best first."""
        scores = self.scores(question)
        order = np.argsort(-scores, kind="stable")[:count]
        return [self.texts[i] for i in order.tolist() if scores[i] > 0]
