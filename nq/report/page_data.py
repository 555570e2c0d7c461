"""The data of one question for the report's page: a row of the list, and the details.

Keys are short, since there are thousands of questions:

    row      i id · q question · a answer · e expected answers · o verdict on the answer, outcomes
             of the long and of the short answer · p their scores · t index of the value of each
             trait · b answer of the other run · bo, bp the same of it · c 1 if the answer changed
    details  q question · title · where file and line · blocks on the page · given, other: the
             answers · gold: the answers of the annotators · lost stages · nbest · passages

Marks of a passage: P, G, O are the long answers of the prediction, of gold and of the other run;
p, g, o are the short ones.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from nq.answers import located
from nq.evaluation.evaluate import expected_texts, judge
from nq.evaluation.nq_eval import decisions_of_one
from nq.evaluation.official import places, token_spans
from nq.formats.documents import one_line, record_spelling
from nq.records import Example, Prediction, Source, Span, YesNo
from nq.report.judgments import Case

TITLE_CHARS = 300
ROW_CHARS = 120
SNIPPET_CHARS = 160
DETAIL_CHARS = 4000
"""Characters of a title, and of an answer in a row, of a long one in details, of a short one."""
MAX_EXPECTED = 4
MAX_N_BEST = 10
MAX_CHARS = 6000
AROUND_CHARS = 1500
"""Characters of a block that are shown, and before its first mark if it is too long."""
AROUND_TOKENS = 40  # around an answer that is in no block

Segment = str | list[str]
"""A piece of text; with marks, the text and the letters of its marks."""
Marks = Mapping[str, Sequence[Span]]  # by mark, a letter

Entry = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """One question of a run with everything that the report shows.

    ``other`` is the prediction of the run that it is compared with, ``n_best`` the line of
    ``nbest.jsonl``. There is no ``case`` without annotations.
    """

    example: Example
    source: Source
    prediction: Prediction
    other: Prediction | None = None
    n_best: Mapping[str, Any] | None = None
    case: Case | None = None

    @property
    def changed(self) -> bool:
        return self.other is not None and places(self.prediction) != places(self.other)


def outcomes(example: Example, prediction: Prediction) -> list[str]:
    """Returns the verdict on an answer, as the table of answers has it, and two outcomes.

    They are those of the long and of the short answer. What has no gold is empty.
    """
    judgment = judge(example, prediction)
    if judgment.gold is None:
        return [judgment.verdict or "", "", ""]
    decisions = decisions_of_one(judgment.gold, prediction)
    return [str(judgment.verdict), *(decision.outcome for decision in decisions)]


def scores(prediction: Prediction) -> list[float]:
    """Returns the score of the answer, which is the short one if there is one, and of both."""
    long = prediction.long_score
    short = prediction.short_score
    answer = short if prediction.has_short else long
    return [round(float(score), 4) for score in (answer, long, short)]


def parts(prediction: Prediction) -> tuple[Span | None, list[Span], YesNo]:
    """Returns the long answer, the short answers, and yes, no or none."""
    longs = token_spans([prediction.long] if prediction.long else [])
    return next(iter(longs), None), token_spans(prediction.shorts), prediction.yes_no


def entries(question: Question, traits: Sequence[int], more_chars: int) -> tuple[Entry, Entry]:
    """Returns the row of a question, whose ``traits`` are indices of their values, and its details.

    ``more_chars`` characters of the page are shown besides the blocks with answers.
    """
    example = question.example
    prediction = question.prediction
    other = question.other
    case = question.case
    page = ShownPage(example)
    annotations = example.annotations or ()
    votes = Counter((a.long, a.shorts, a.yes_no) for a in annotations)
    expected = expected_texts(
        example, lambda gold: page.row_answer(gold.long, gold.shorts, gold.yes_no)
    )
    row: Entry = {
        "i": str(example.example_id),
        "q": example.question[:TITLE_CHARS],
        "a": page.row_answer(*parts(prediction)),
        "e": [text[:ROW_CHARS] for text in expected[:MAX_EXPECTED]],
        "o": outcomes(example, prediction),
        "p": scores(prediction),
        "t": list(traits),
    }
    if other:
        row |= {"b": page.row_answer(*parts(other)), "c": int(question.changed)}
        row |= {"bo": outcomes(example, other), "bp": scores(other)}
    listed = question.n_best and question.n_best["answers"][:MAX_N_BEST]
    details: Entry = {
        "q": example.question[:DETAIL_CHARS],
        "title": example.title[:TITLE_CHARS],
        "where": f"{Path(question.source.path).name}, line {question.source.line}",
        "given": page.with_scores(prediction),
        "other": page.with_scores(other) if other else None,
        "gold": [
            page.answer(*gold) | {"votes": count, "of": votes.total()}
            for gold, count in votes.most_common()
        ],
        "lost": [str(j.lost or "") for j in case.judgments.values()] if case else [],
        "nbest": listed and [page.listed(one) for one in listed],
        "blocks": len(page.blocks),
    }
    longs = dict[str, list[Span]]()
    shorts = dict[str, Sequence[Span]]()
    for name, one in (("P", prediction), ("O", other)):
        if one:
            long, shorts[name.lower()], _ = parts(one)
            longs[name] = [long] if long else []
    longs["G"] = list(dict.fromkeys(a.long for a in annotations if a.long))
    shorts["g"] = list(dict.fromkeys(span for a in annotations for span in a.shorts))
    shown = [Span(*one["t"]) for one in details["nbest"] or () if one["t"]]
    return row, details | {"passages": page.passages(longs, shorts, more_chars, shown)}


def _listed_span(span: Mapping[str, Any]) -> Span:
    return Span(span["start_token"], span["end_token"])


class ShownPage:
    """The readable text of a page, and its blocks: the top-level candidates in page order."""

    def __init__(self, example: Example) -> None:
        self.example = example
        self.blocks = sorted({c.span for c in example.candidates if c.top_level})
        self.text = cache(partial(span_text, example))

    def short(self, shorts: Sequence[Span], yes_no: str) -> str:
        if yes_no.upper() != YesNo.NONE:
            return yes_no.upper()
        return "; ".join(map(self.text, shorts))

    def row_answer(self, long: Span | None, shorts: Sequence[Span], yes_no: str) -> str:
        """Returns the answer of a row: the short one, else the long one, else nothing."""
        text = self.short(shorts, yes_no) or (self.text(long, ROW_CHARS) if long else "")
        return text[:ROW_CHARS]

    def with_scores(self, prediction: Prediction) -> Entry:
        scores = {"lp": prediction.long_score, "sp": prediction.short_score}
        return self.answer(*parts(prediction)) | scores

    def answer(self, long: Span | None, shorts: Sequence[Span], yes_no: str) -> Entry:
        return {
            "s": self.short(shorts, yes_no)[:DETAIL_CHARS],
            "l": self.text(long, SNIPPET_CHARS) if long else "",
            "n": self.number(long),
            "p": self.passage_name(long),
            "t": [long.start, long.end] if long else None,
        }

    def listed(self, one: Mapping[str, Any]) -> Entry:
        """Returns an answer of an n-best list in the details, with its scores."""
        long = one["long_answer"] and _listed_span(one["long_answer"])
        both = self.answer(
            long, list(map(_listed_span, one["short_answers"])), one["yes_no_answer"]
        )
        return {**both, "lp": one["long_score"], "sp": one["short_score"]}

    def passage_name(self, span: Span | None) -> str:
        """Returns rank, title and id of the passage of a retriever; empty for none."""
        passage = span and self.example.passage(span)
        if not passage:
            return ""
        name = passage.title[:TITLE_CHARS] or "passage"
        key = "" if passage.passage_id is None else f" ({passage.passage_id})"
        return f"{passage.rank}. {name}{key}"

    def number(self, span: Span | None) -> int | None:
        """Returns the number, from 1 on, of the first block around a span; ``None`` for none."""
        if span is None:
            return None
        return next((n for n, block in enumerate(self.blocks, 1) if block.contains(span)), None)

    def passages(
        self, longs: Marks, shorts: Marks, more_chars: int, others: Iterable[Span] = ()
    ) -> list[dict[str, Any]]:
        """Returns the passages with answers, and those nearest to them, in page order.

        A long answer that is a whole block marks the passage. Of the blocks without answers, which
        have at most ``more_chars`` characters, those of ``others`` come first.
        """
        tokens = self.example.tokens
        answers = [span for marks in (longs, shorts) for spans in marks.values() for span in spans]
        first = set(filter(None, map(self.number, answers)))
        near = set(filter(None, map(self.number, others)))

        def distance(number: int) -> tuple[bool, int, int]:
            blocks = min((abs(number - other) for other in first), default=number)
            return number not in near, blocks, number

        shown: list[tuple[Span, int | None]] = [(self.blocks[n - 1], n) for n in first]
        for number in sorted({*range(1, len(self.blocks) + 1)} - first, key=distance):
            block = self.blocks[number - 1]
            more_chars -= min(MAX_CHARS, sum(map(len, tokens[block.start : block.end])))
            if more_chars < 0:
                break
            shown.append((block, number))
        for span in {span for span in answers if not self.number(span)}:
            end = min(len(tokens), span.end + AROUND_TOKENS, span.start + MAX_CHARS + AROUND_TOKENS)
            shown.append((Span(max(0, span.start - AROUND_TOKENS), end), None))
        return [
            {
                "n": number,
                "k": self.example.block_type(span) if number else "",
                "e": int(number is None or number in first),
                "l": "".join(letter for letter, spans in longs.items() if span in spans),
                "x": marked(
                    self.example,
                    span,
                    {k: [s for s in spans if s != span] for k, spans in longs.items()} | {**shorts},
                ),
            }
            for span, number in sorted(dict.fromkeys(shown), key=lambda passage: passage[0])
        ]


def span_text(example: Example, span: Span, max_chars: int = DETAIL_CHARS) -> str:
    """Returns the readable text of a span in one line, cut to a number of characters."""
    last = min(span.end, len(example.tokens))
    end = min(last, span.start + max_chars // 2 + 8)
    text = one_line(example, Span(span.start, end))
    return text[: max_chars - 1] + "…" if len(text) > max_chars or end < last else text


def marked(example: Example, block: Span, marks: Marks) -> list[Segment]:
    """Returns the text of a block in segments, marked by the spans inside it.

    Of a block that is too long the part around its first mark is shown.
    """
    inside = [(k, span) for k, spans in marks.items() for span in filter(block.contains, spans)]
    answers = [Span(s.start - block.start, s.end - block.start) for _, s in inside]
    text, places = located(record_spelling(example, block), answers)
    ranges = [(*place, k) for place, (k, _) in zip(places, inside, strict=True) if place]
    low, high = 0, len(text)
    if high > MAX_CHARS:
        low = max(0, min(ranges)[0] - AROUND_CHARS if ranges else 0)
        high = min(high, low + MAX_CHARS)
    segments: list[Segment] = ["… "] if low else []
    cuts = {low, high, *(c for a, b, _ in ranges for c in (a, b) if low < c < high)}
    for start, end in pairwise(sorted(cuts)):
        letters = "".join(sorted({k for a, b, k in ranges if a <= start and end <= b}))
        segments.append([text[start:end], letters] if letters else text[start:end])
    if high < len(text):
        segments.append(" …")
    return segments
