"""What the page knows about one question: a row of the list, and the details.

The page has the rows of all questions; details may be in files beside it. Keys are short, since
there are thousands of rows:

    row      i id · q question · a answer · e expected answers · o outcomes of the answer, of the
             long and of the short answer · p their scores · t index of the value of each trait ·
             b answer of the other run · bo, bp its outcomes and scores · c 1 if the answer changed
    details  q question · title · where file and line · blocks on the page · given, other: the
             answers · gold: those of the annotators · lost stages · nbest · passages

Marks of a passage: P, G, O are the long answers of the prediction, of gold and of the other run;
p, g, o are the short ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nq.records import Span
from nq.report.questions import Question, long_spans, short_spans
from nq.report.texts import DETAIL_CHARS, ROW_CHARS, TITLE_CHARS, Entry, Texts

MAX_EXPECTED = 4


def entries(question: Question, traits: Sequence[int], more_chars: int) -> tuple[Entry, Entry]:
    """Returns the row of a question, and its details.

    Args:
        question: the question.
        traits: index of its value of each trait.
        more_chars: characters of the page besides the blocks with answers.
    """
    texts = Texts(question)
    return _row(question, texts, traits), _details(question, texts, more_chars)


def _row(question: Question, texts: Texts, traits: Sequence[int]) -> Entry:
    mine, other = question.mine, question.other
    values: Entry = {
        "i": str(question.example_id),
        "q": texts.question()[:TITLE_CHARS],
        "a": texts.answer(mine.label)[:ROW_CHARS],
        "e": [text[:ROW_CHARS] for text in texts.expected()[:MAX_EXPECTED]],
        "o": mine.outcomes(),
        "p": mine.scores(),
        "t": list(traits),
    }
    if other:
        answer = texts.answer(other.label)[:ROW_CHARS]
        values |= {"b": answer, "bo": other.outcomes(), "bp": other.scores()}
        values["c"] = int(question.changed)
    return values


def _details(question: Question, texts: Texts, more_chars: int) -> Entry:
    case, example, source = question.case, question.example, question.source
    values: Entry = {
        "q": texts.question()[:DETAIL_CHARS],
        "title": texts.title()[:TITLE_CHARS],
        "where": f"{Path(source.path).name}, line {source.line}" if source else "",
        "given": texts.details(question.mine.label),
        "other": texts.details(question.other.label) if question.other else None,
        "gold": texts.gold(),
        "lost": [str(judgment.lost or "") for judgment in (case.long, case.short)] if case else [],
        "nbest": texts.n_best(),
    }
    if example is not None and texts.blocks is not None:
        shown = [Span(*a["t"]) for a in values["nbest"] or () if a["t"]]
        values["blocks"] = len(texts.blocks.spans)
        values["passages"] = texts.blocks.passages(*_marks(question), more_chars, shown)
    return values


def _marks(question: Question) -> tuple[dict[str, list[Span]], dict[str, list[Span]]]:
    """Returns the long and the short answers by mark."""
    runs = {"P": question.mine, **({"O": question.other} if question.other else {})}
    annotations = (question.example and question.example.annotations) or ()
    longs = {name: long_spans(scored.label) for name, scored in runs.items()}
    shorts = {name.lower(): short_spans(scored.label) for name, scored in runs.items()}
    longs["G"] = list(dict.fromkeys(a.long for a in annotations if a.long))
    shorts["g"] = list(dict.fromkeys(span for a in annotations for span in a.shorts))
    return longs, shorts
