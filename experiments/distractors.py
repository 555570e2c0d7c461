"""Makes pages longer by blocks of other pages, for training and for tuning.

Pages of the training data have a few paragraphs, real ones 40 to 150 blocks, lists and tables among
them. On these a model has to reject blocks that only look relevant. Of the blocks that are added to
a page

- a quarter are lists and tables: those that BM25 ranks highest for the question, and random ones,
- up to half of the others are random paragraphs of records about the same article,
- the rest are the paragraphs that BM25 ranks highest, or only the first of them and random ones.

They are put before and behind the page in random order. A block that contains a short answer of the
question is left out.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
from scipy.sparse import csr_matrix

from experiments.training_data import Record
from nq.postprocess.blocks import B, K
from nq.records import FloatArray
from nq.text import terms

PARAGRAPH = "<P>"
NO_ARTICLE = "Wikipedia"
"""Title of records whose article is not known."""


def lengthened(
    records: Sequence[Record],
    others: Sequence[Record],
    fewest: int,
    most: int,
    seed: int,
    ranked: int | None = None,
) -> Iterator[Record]:
    """Yields each record with ``fewest`` to ``most`` blocks of other records.

    Args:
        records: in simplified NQ format, as ``others``.
        others: the records whose blocks are added.
        fewest, most: the limits of the number of added blocks, which is drawn evenly.
        seed: of all draws, which depend on the record's id besides.
        ranked: paragraphs that BM25 chooses at most, as many lists and tables; ``None`` for all.
    """
    articles: dict[str, list[str]] = defaultdict(list)
    texts: dict[str, None] = {}
    for record in others:
        own = paragraphs(record)
        texts |= dict.fromkeys(own)
        if record["document_title"] != NO_ARTICLE:
            articles[record["document_title"]] += [t for t in own if t.startswith(PARAGRAPH)]
    plain = Index([text for text in texts if text.startswith(PARAGRAPH)])
    structured = Index([text for text in texts if not text.startswith(PARAGRAPH)])
    for record in records:
        draw = random.Random(f"{seed}/{record['example_id']}")
        count = draw.randint(fewest, most)
        question = record["question_text"]
        own = paragraphs(record)
        answers = short_answers(record)
        neighbours = articles.get(record["document_title"], [])
        first = ranked or 0
        rest = plain.best(question, 3 * count)
        if ranked is not None:
            rest = _sample(draw, plain.texts, count)
        sources = (  # each until there are so many blocks
            (plain.best(question, 3 * first), first),
            (structured.best(question, count), first + min(count // 8, first or count)),
            (_sample(draw, structured.texts, count), first + count // 4),
            (_sample(draw, neighbours, count), first + count // 4 + (count - count // 4) // 2),
            (rest, count),
        )
        added: dict[str, None] = {}
        for candidates, total in sources:
            for text in candidates:
                if len(added) >= total:
                    break
                if text not in own and not any(answer in text for answer in answers):
                    added[text] = None
        blocks = _sample(draw, list(added), count)
        cut = draw.randint(0, len(blocks))
        yield inserted(record, blocks[:cut], blocks[cut:])


def _sample(draw: random.Random, texts: Sequence[str], count: int) -> list[str]:
    """Returns ``count`` texts, or all if there are fewer, in random order."""
    return draw.sample(texts, min(count, len(texts)))


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
    numbers = {i: i + len(before) for i in range(len(candidates))}
    longer = [*tokens[:cut], *front, *tokens[cut:], *after]
    page = _moved(record, longer, numbers, lambda token: token + shift)
    blocks = [
        *_candidates(before, cut),
        *page["long_answer_candidates"],
        *_candidates(after, len(tokens) + shift),
    ]
    return {**page, "long_answer_candidates": blocks}


def gold_blocks(record: Record) -> set[int]:
    """Returns the candidate indices of the blocks that an annotation names."""
    return {a["long_answer"]["candidate_index"] for a in record["annotations"]} - {-1}


def without_gold(record: Record) -> Record:
    """Returns the record without the blocks that an annotation names, and so without an answer."""
    return without_blocks(record, gold_blocks(record))


def without_blocks(record: Record, indices: Collection[int]) -> Record:
    """Returns the record without some blocks; annotations that name one of them become null."""
    tokens = record["document_text"].split(" ")
    candidates = record["long_answer_candidates"]
    gone = set[int]()
    for i in indices:
        gone.update(range(candidates[i]["start_token"], candidates[i]["end_token"]))
    left = [i for i, candidate in enumerate(candidates) if candidate["start_token"] not in gone]
    places = np.cumsum([0, *(number not in gone for number in range(len(tokens)))])
    kept = [token for number, token in enumerate(tokens) if number not in gone]
    numbers = {index: number for number, index in enumerate(left)}
    return _moved(record, kept, numbers, lambda token: int(places[token]))


def _moved(
    record: Record,
    tokens: Sequence[str],
    numbers: Mapping[int, int],
    place: Callable[[int], int],
) -> Record:
    """Returns the record with other tokens.

    ``numbers`` maps the candidates that stay to their new numbers, ``place`` their tokens to new
    places. Annotations that name another candidate become null.
    """

    def moved(span: Record) -> Record:
        return {**span, **{name: place(span[name]) for name in ("start_token", "end_token")}}

    def annotation(given: Record) -> Record:
        number = numbers.get(given["long_answer"]["candidate_index"])
        if number is None:
            null = {"start_token": -1, "end_token": -1, "candidate_index": -1}
            return {
                **given,
                "long_answer": null,
                "short_answers": [],
                "yes_no_answer": "NONE",
            }
        return {
            **given,
            "long_answer": {**moved(given["long_answer"]), "candidate_index": number},
            "short_answers": [*map(moved, given["short_answers"])],
        }

    return {
        **record,
        "document_text": " ".join(tokens),
        "long_answer_candidates": [moved(record["long_answer_candidates"][i]) for i in numbers],
        "annotations": [*map(annotation, record["annotations"])],
    }


def _candidates(texts: Sequence[str], start: int) -> Iterator[Record]:
    """Yields the candidates of consecutive blocks, the first of which begins at ``start``."""
    for text in texts:
        end = start + len(text.split(" "))
        yield {"start_token": start, "end_token": end, "top_level": True}
        start = end


class Index:
    """A BM25 index of many texts to rank; see ``nq.postprocess.blocks`` for the formula."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = texts
        counts = [Counter(terms(text)) for text in texts]
        self.words: dict[str, int] = {}
        columns = [[self.words.setdefault(w, len(self.words)) for w in c] for c in counts]
        lengths = np.array([sum(c.values()) for c in counts], np.float64)
        rows = np.repeat(np.arange(len(texts)), [len(c) for c in columns])
        tf = np.array([n for c in counts for n in c.values()], np.float64)
        norm = K * (1 - B + B * lengths / max(float(lengths.sum()) / max(len(texts), 1), 1.0))
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
