"""The inputs and outputs of the question-answering pipeline that transformers 4 had.

A model that was trained with nq reads the context as a page, with markers around its blocks, and
decides by its probabilities. A Hugging Face model, which has no head for types, gets
the windows and the decision of that pipeline: ``[CLS] question [SEP] context [SEP]``, and as the
score of a span the product of two softmaxes, of starts and of ends, over [CLS] and the context in a
window. The scores of spans with the same text are added; the score of an empty answer is the lowest
product at [CLS] of all windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import islice
from typing import Any, TypeVar, cast

import numpy as np

from nq.errors import check_argument
from nq.formats.documents import page_from_text
from nq.inference.reduction import LOGITS
from nq.postprocess.ranking import Ranking
from nq.postprocess.spans import softmax
from nq.preprocess.features import window_ranges, window_rows
from nq.preprocess.tokenizers.base import TextPieces, Tokenizer
from nq.records import Columns, Example, IntArray

MAX_ANSWER_LEN = 15
MAX_SEQ_LEN = 384
DOC_STRIDE = 128
"""The defaults of the pipeline of transformers, in pieces; ``DOC_STRIDE`` is an overlap."""
SPARE_SPANS = 10
DATASET_ROWS = 128

Method = TypeVar("Method", bound=Callable[..., Any])

Asked = str | Mapping[str, Any] | Iterable[str] | Iterable[Mapping[str, str]]
SpanAnswer = dict[str, Any]
"""``score``, ``answer``, and ``start`` and ``end``, its characters in the context."""


def as_list(source: Any) -> Any:
    """Returns a sequence or a pandas Series as a list, a frame as one of dicts; else ``source``."""
    if hasattr(source, "iloc"):  # of pandas, which is not imported
        return source.to_dict("records") if hasattr(source, "columns") else source.tolist()
    is_sequence = isinstance(source, Sequence) and not isinstance(source, str | bytes)
    return list(source) if is_sequence else source


def streamed(method: Method) -> Method:
    """Has a method that answers a list take what ``as_list`` does, and iterators, which it streams.

    An iterator may wait for an answer, so that ``batch_size`` questions are read at once, by
    default 1; of other iterables, such as a ``datasets.Dataset``, ``DATASET_ROWS``.
    """

    @wraps(method)
    def answers(reader: Any, question: Any, *args: Any, **options: Any) -> Any:
        question = as_list(question)
        if isinstance(question, str | bytes | Mapping | list) or not isinstance(question, Iterable):
            return method(reader, question, *args, **options)
        method(reader, [], *args, **options)  # checks the others
        size = options.get("batch_size") or (1 if isinstance(question, Iterator) else DATASET_ROWS)
        rows = iter(question)
        groups = iter(lambda: list(islice(rows, size)), [])
        return (one for group in groups for one in method(reader, group, *args, **options))

    return cast(Method, answers)


def pairs_of(question: Asked, context: Any) -> tuple[list[tuple[str, str]], bool]:
    """Returns each question with its context, and whether they are in a list.

    Raises:
        ValueError: there is no context or one too many, their numbers differ, or one is empty or
            not a text.
    """
    if isinstance(question, Mapping):
        question, context = parts_of(question, context)
    several = isinstance(question, Iterable) and not isinstance(question, str | bytes)
    questions: list[Any] = list(question) if several else [question]
    contexts = as_list(context)
    contexts = contexts if isinstance(contexts, list) else [context] * len(questions)
    check_argument(
        len(questions) == len(contexts), "context", context, f"one, or {len(questions)} in a list"
    )
    pairs = list[tuple[Any, Any]]()
    for item, own in zip(questions, contexts, strict=True):
        pairs.append(parts_of(item, own) if isinstance(item, Mapping) else (item, own))
        for name, text in zip(("question", "context"), pairs[-1], strict=True):
            is_text = isinstance(text, str) and bool(text.strip())
            check_argument(is_text, name, text, "a text that is not empty")
    return pairs, several


def parts_of(pair: Mapping[str, Any], other: Any = None) -> tuple[Any, Any]:
    """Returns question and context of a dict; ``ValueError`` if there is another context."""
    check_argument(
        other is None,
        "context",
        other,
        "none beside a dict; give several in a list",
    )
    return pair.get("question"), pair.get("context")


def examples_of(pairs: Iterable[tuple[str, str]]) -> list[Example]:
    """Returns questions with their contexts as examples."""
    pages = {text: page_from_text(text, "the context") for _, text in pairs}
    return [pages[text].with_question(question) for question, text in pairs]


def span_answers(
    rankings: Iterable[Ranking], top_k: int, handle_impossible_answer: bool
) -> Iterator[list[SpanAnswer]]:
    """Yields the ``top_k`` most probable short answers to each example, best first.

    The score of an empty answer, if it is possible, is the probability that the best one is wrong,
    but at most that of the best one if this is given by the decision's thresholds, else at least.
    """
    for ranking in rankings:
        example = ranking.example
        answers = list[SpanAnswer]()
        for span, score in ranking.short_spans(top_k):
            place = example.original and example.original.place(span)
            if place:
                answers.append(_answer(score, *place, example.text(span)))
        best = answers[0]["score"] if answers else 0.0
        if handle_impossible_answer:
            is_first = not _is_given(ranking, best)
            empty = _answer((max if is_first else min)(best, 1 - best))
            answers.insert(0 if is_first else len(answers), empty)
        yield best_first(answers, top_k)


def best_first(answers: Iterable[SpanAnswer], top_k: int) -> list[SpanAnswer]:
    """Returns the ``top_k`` best answers, or an empty one if there is none."""
    return sorted(answers, key=lambda one: -one["score"])[:top_k] or [_answer(0.0)]


def _is_given(ranking: Ranking, short_probability: float) -> bool:
    """Returns whether the thresholds let a short answer through, and the best block with it."""
    block_probability = float(ranking.probabilities.max(initial=0.0))
    has_long = block_probability >= ranking.config.long_threshold
    return has_long and short_probability >= ranking.config.short_threshold


def _answer(score: float, start: int = 0, end: int = 0, answer: str = "") -> SpanAnswer:
    return {"score": score, "start": start, "end": end, "answer": answer}


@dataclass(frozen=True, eq=False)
class ContextWindows:
    """The windows of a question and its context, as a Hugging Face model knows them.

    Args:
        rows: as of ``nq.records.Features``; ``token_map`` has the context's pieces.
        ranges: the half-open range of pieces of the context in each window.
        first: the position of the first of them.
    """

    context: str
    pieces: TextPieces
    rows: Columns
    ranges: list[tuple[int, int]]
    first: int

    @classmethod
    def of(
        cls, question: str, context: str, tokenizer: Tokenizer, length: int, overlap: int
    ) -> ContextWindows:
        """Returns windows of ``length`` pieces, of which ``overlap`` are in the next one too."""
        query = tokenizer.encode_text(question)
        pieces = tokenizer.encode_text(context)
        # The piece of a blank alone has the first letter of the next word in some classes.
        blanks = np.array(pieces.ids) == tokenizer.piece_id("\u2581")
        pieces.chars[blanks, 1] = pieces.chars[blanks, 0]
        separators = [tokenizer.sep_id] * tokenizer.separators
        head = [tokenizer.cls_id, *query.ids, *separators]
        room = length - len(head) - 1
        n = len(query.ids)
        both = f"doc_stride ({overlap}) and the question ({n} pieces)"
        expected = f"{both} to be less than {n + room} together, by max_seq_len {length}"
        name, value = ("question", question) if 2 * room <= length else ("doc_stride", overlap)
        check_argument(overlap < room, name, value, expected)
        ranges = window_ranges(len(pieces.ids), room, room - overlap) or [(0, 0)]
        ids = np.array([*pieces.ids, tokenizer.pad_id])
        every = np.arange(len(ids))
        edges = np.array(ranges)
        rows = window_rows(head, ids, every, edges, length, int(tokenizer.segments), tokenizer)
        rows["window_ids"] = np.stack(
            [np.arange(len(edges)), np.full(len(edges), len(edges))], axis=1
        )
        return cls(context, pieces, rows, ranges, len(head))

    def answers(
        self,
        logits: Columns,
        top_k: int,
        handle_impossible_answer: bool,
        max_answer_len: int,
        align_to_words: bool,
    ) -> list[SpanAnswer]:
        """Returns the answers of the pipeline, from the logits of starts and ends.

        Of those with the same text the first one in the context has the place.
        """
        answers: dict[str, SpanAnswer] = {}
        empty = _answer(1.0)
        limit = 2 * top_k + SPARE_SPANS if align_to_words else top_k
        for row, (first, last) in enumerate(self.ranges):
            inside = [0, *range(self.first, self.first + last - first)]
            starts, ends = (softmax(logits[name][row, inside]) for name in LOGITS[:2])
            empty["score"] = min(empty["score"], float(starts[0] * ends[0]))
            products = np.tril(np.triu(np.outer(starts[1:], ends[1:])), max_answer_len - 1)
            best = np.argsort(-products, axis=None, kind="stable")[:limit]
            places = self._places(first, last, align_to_words)
            for i, j in zip(*np.unravel_index(best, products.shape), strict=True):
                if not products[i, j]:
                    break
                begin = int(places[i, 0])
                behind = int(places[j, 1])
                text = self.context[begin:behind].lstrip(" ")  # which some pieces begin with
                begin = behind - len(text)
                answer = answers.setdefault(text.lower(), _answer(0.0, begin, behind, text))
                answer["score"] += float(products[i, j])
        found = list(answers.values())
        if handle_impossible_answer:
            found.append(empty)
        return best_first(found, top_k)

    def _places(self, first: int, last: int, align_to_words: bool) -> IntArray:
        """Returns the character range of each piece in a window, or of its word, ``[P, 2]``."""
        chars = self.pieces.chars[first:last]
        words = self.pieces.words[first:last]
        if not align_to_words:
            return chars
        begin, end = (np.searchsorted(words, words, side) for side in ("left", "right"))
        return np.column_stack([chars[begin, 0], chars[end - 1, 1]])
