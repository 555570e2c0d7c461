"""The answers to a question in words: from its page, or from the n-best list if that is gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from nq.evaluation.labels import Label
from nq.records import Annotation, Span, YesNo
from nq.report.passages import Blocks, span_text
from nq.report.questions import Question, long_spans, short_spans

TITLE_CHARS, ROW_CHARS, SNIPPET_CHARS, DETAIL_CHARS = 300, 120, 160, 4000
"""Characters of a title, and of an answer in a row, of a long one in details, of a short one."""
MAX_N_BEST = 10

Entry = dict[str, Any]


class Texts:
    """The texts of a question: of its page, or of the n-best list if the data are gone."""

    def __init__(self, question: Question) -> None:
        self._question, self._example = question, question.example
        self.blocks = Blocks(question.example) if question.example else None
        self._cut: dict[tuple[Span, int], str] = {}

    def question(self) -> str:
        return self._example.question if self._example else self._listed("question")

    def title(self) -> str:
        return self._example.title if self._example else self._listed("title")

    def _listed(self, name: str) -> str:
        return str((self._question.n_best or {}).get(name, ""))

    def text(self, span: Span, max_chars: int = DETAIL_CHARS) -> str:
        """Returns the text of a span, or its tokens if the text is not known."""
        if self._example is None:
            text = self._texts().get(span)
            return f"tokens {span.start} to {span.end - 1}" if text is None else text[:max_chars]
        if (span, max_chars) not in self._cut:
            in_page = Span(span.start, min(span.end, len(self._example.tokens)))
            self._cut[span, max_chars] = span_text(self._example, in_page, max_chars)
        return self._cut[span, max_chars]

    def _texts(self) -> dict[Span, str]:
        """Returns the texts of the spans in the n-best list."""
        answers = (self._question.n_best or {}).get("answers", ())
        spans = [s for a in answers for s in (a["long_answer"], *a["short_answers"]) if s]
        return {Span(s["start_token"], s["end_token"]): str(s["text"]) for s in spans}

    def short(self, shorts: Sequence[Span], yes_no: str) -> str:
        """Returns the short answer in words, empty if there is none."""
        if yes_no.upper() != YesNo.NONE:
            return yes_no.upper()
        return "; ".join(self.text(span) for span in shorts)

    def answer(self, label: Label) -> str:
        """Returns the answer in words: the short one, else the long one, else nothing."""
        short = self.short(short_spans(label), label.yes_no)
        return short or next((self.text(span, ROW_CHARS) for span in long_spans(label)), "")

    def details(self, label: Label) -> Entry:
        """Returns both answers of a prediction."""
        longs = long_spans(label)
        return self._both(longs[0] if longs else None, short_spans(label), label.yes_no) | {
            "lp": label.long_score,
            "sp": label.short_score,
        }

    def _both(self, long: Span | None, shorts: Sequence[Span], yes_no: str) -> Entry:
        return {
            "s": self.short(shorts, yes_no)[:DETAIL_CHARS],
            "l": self.text(long, SNIPPET_CHARS) if long else "",
            "n": self.blocks.number(long) if self.blocks else None,
            "t": [long.start, long.end] if long else None,
        }

    def _annotations(self) -> Sequence[Annotation]:
        return (self._example and self._example.annotations) or ()

    def gold(self) -> list[Entry]:
        """Returns the distinct answers of the annotators, that of the most first."""
        votes = Counter((a.long, a.shorts, a.yes_no) for a in self._annotations())
        return [
            self._both(long, shorts, yes_no) | {"votes": count, "of": votes.total()}
            for (long, shorts, yes_no), count in votes.most_common()
        ]

    def expected(self) -> list[str]:
        """Returns the answers of which one would be right, that of the most annotators first."""
        mine, votes = self._question.mine, Counter[str]()
        if mine.long is None or mine.short is None:
            return []
        for annotation in self._annotations():
            if mine.short.has_gold:
                votes[self.short(annotation.shorts, annotation.yes_no)] += 1
            elif mine.long.has_gold and annotation.long:
                votes[self.text(annotation.long, ROW_CHARS)] += 1
        return [text for text, _ in votes.most_common() if text]

    def n_best(self) -> list[Entry] | None:
        """Returns the n-best list, the given answer first."""
        if self._question.n_best is None:
            return None
        return [
            self._both(
                _span(answer["long_answer"]),
                [span for short in answer["short_answers"] if (span := _span(short))],
                answer["yes_no_answer"],
            )
            | {"lp": answer["long_score"], "sp": answer["short_score"]}
            for answer in self._question.n_best["answers"][:MAX_N_BEST]
        ]


def _span(span: Mapping[str, Any] | None) -> Span | None:
    return Span(span["start_token"], span["end_token"]) if span else None
