"""A page of three blocks with stage outputs, random cases, and questions of every outcome."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from hypothesis import strategies as st

from nq.config import WindowConfig
from nq.evaluation.evaluate import example_gold
from nq.evaluation.nq_eval import decisions_of_one
from nq.formats import outputs
from nq.lab.rows import cells, row
from nq.postprocess.spans import Pairs
from nq.preprocess.contexts import contexts
from nq.records import (
    Alternative,
    Annotation,
    Candidate,
    Example,
    Prediction,
    Source,
    Span,
    YesNo,
)
from nq.report.judgments import (
    KINDS,
    STAGES,
    TRAITS,
    Case,
    Judgment,
    Stage,
    StageOutputs,
    judgments,
    traits,
)
from nq.report.page import RunView, write_page
from nq.report.page_data import Question

FIRST, SECOND, THIRD = Span(0, 8), Span(8, 16), Span(16, 24)
TOKENS = [
    *("<P>", "a1", "a2", "a3", "a4", "a5", "a6", "</P>"),
    *("<Ul>", "b9", "b10", "b11", "b12", "b13", "b14", "</Ul>"),
    *("<Table>", "c17", "c18", "c19", "c20", "c21", "c22", "</Table>"),
]
PAGE = Example(
    5,
    "who is <b>",
    TOKENS,
    [t[0] == "<" for t in TOKENS],
    [
        Candidate(FIRST, True),
        Candidate(Span(1, 3), False),
        Candidate(SECOND, True),
        Candidate(THIRD, True),
    ],
)
NULL = Annotation(None, None, (), YesNo.NONE)
WHOLE_PAGE = (tuple(range(24)),)


def annotation(long: Span | None = SECOND, *shorts: Span, yes_no: YesNo = YesNo.NONE) -> Annotation:
    return Annotation(long, None, shorts, yes_no)


def page(*annotations: Annotation) -> Example:
    return replace(PAGE, annotations=annotations)


def predicted(
    long: Span | None = None, *shorts: Span, yes_no: YesNo = YesNo.NONE, score: float = 0.5
) -> Prediction:
    return Prediction(0, long, score, shorts, score / 2, yes_no)


def stages(
    max_contexts: int = 48,
    windows: Sequence[Sequence[int]] = WHOLE_PAGE,
    positions: Sequence[tuple[int, int]] | None = None,
) -> StageOutputs:
    """Returns stage outputs: ``windows`` are document tokens; ends of ``positions`` inclusive."""
    length = max(map(len, windows))
    token_map = np.array([[*row, *[-1] * (length - len(row))] for row in windows])
    pairs = None
    if positions is not None:
        start, end = np.array(positions, int).reshape(-1, 2).T
        pairs = Pairs(np.zeros(len(start)), start * 0, start, end, start, end)
    return StageOutputs(contexts(PAGE, WindowConfig(max_contexts=max_contexts)), token_map, pairs)


def drawn_judgments() -> st.SearchStrategy[Judgment]:
    """Draws judgments, lost at some stage where the outcome allows it."""

    def of(has_gold: bool, predicted: bool, correct: bool) -> st.SearchStrategy[Judgment]:
        correct &= has_gold and predicted
        lost = st.sampled_from(Stage) if has_gold and not correct else st.none()
        decision = map(st.just, (has_gold, predicted, correct))
        return st.builds(Judgment, *decision, st.floats(0, 1), lost)

    return st.tuples(st.booleans(), st.booleans(), st.booleans()).flatmap(lambda flags: of(*flags))


def cases() -> st.SearchStrategy[list[Case]]:
    """Draws cases."""
    values = st.fixed_dictionaries({name: st.sampled_from(v) for name, v in TRAITS.items()})
    both = st.fixed_dictionaries({kind: drawn_judgments() for kind in KINDS})
    return st.lists(st.builds(Case, values, both))


SHORT, OTHER_SHORT = Span(9, 11), Span(1, 3)
GOLD = annotation(SECOND, SHORT)
ANSWERS = {
    "right": (GOLD, SECOND, SHORT),
    "wrong": (GOLD, FIRST, OTHER_SHORT),
    "missed": (GOLD, None, None),
    "extra": (NULL, FIRST, OTHER_SHORT),
    "null": (NULL, None, None),
}
"""Gold, and the long and short answers of the prediction, by the outcome of the answer."""
HOSTILE = (
    "</script><script>document.title='broken'</script><!-- <script> "
    '<img src="http://example.org/x.png" onerror="document.title=\'broken\'"> '
    "{{ 7 * 7 }} ${7*7} &lt;b&gt; \"'` ]]> \u2028\u2029\u202e <b>bold</b> \x00 end"
)
SCORES = {"micro_f1": 0.5, "long-answer-f1": 0.6, "short-answer-f1": 0.4}
METRICS = {
    "metrics": SCORES,
    "time": {"load_s": 1.5, "predict_s": 4.5, "total_s": 6.0},
    **{"examples": 5, "answered": 4, "dead_letters": 0, "windows": 9, "windows_per_s": 2.0},
    **{"peak_memory_bytes": 1 << 30, "speed_comparable": "yes"},
    **{"profile": "mixed", "machine": "2 cores"},
}


def question(number: int, outcome: str, with_other: bool = False) -> Question:
    """Returns a question with an outcome; the other run missed it, or was right."""
    gold, long, short = ANSWERS[outcome]
    score = (number % 100) / 100
    example = replace(page(gold), example_id=number, question=f"who is number {number}")
    mine = predicted(long, *([short] if short else []), score=score if long else 0.0)
    others = predicted(score=0.0) if outcome == "right" else predicted(SECOND, SHORT, score=0.7)
    source = Source(0, "data.jsonl", number + 1)
    listed = (Alternative(SECOND, (SHORT,), YesNo.NONE, 0.4, 0.2),)
    line: dict[str, Any] = orjson.loads(outputs.nbest_line(example, mine, listed))
    case = _case(example, mine)
    other = others if with_other else None
    return Question(example, source, mine, other, line, case)


def _case(example: Example, mine: Prediction) -> Case:
    gold = example_gold(example)
    long, short = decisions = decisions_of_one(gold, mine)
    blocks = contexts(example, WindowConfig())
    values = traits(example, long.has_gold, short.has_gold, blocks, len(blocks))
    return Case(values, judgments(example, decisions, StageOutputs(blocks)), gold)


def questions(count: int, with_other: bool = False) -> Iterator[Question]:
    """Yields questions with the outcomes in turn; their scores are repeated after a hundred."""
    for number, outcome in zip(range(count), cycle(ANSWERS), strict=False):
        yield question(number, outcome, with_other)


def hostile(number: int) -> Question:
    """Returns a question all of whose texts are markup."""
    plain = question(number, "wrong")
    tokens = ["<P>", *HOSTILE.split(" ")[:6], "</P>", "<Ul>", *HOSTILE.split(" ")[:14]]
    tokens += ["</Ul>"] * (24 - len(tokens))
    is_html = [token in ("<P>", "</P>", "<Ul>", "</Ul>") for token in tokens]
    example = replace(
        plain.example,
        example_id=HOSTILE,
        question=HOSTILE,
        tokens=tokens,
        is_html=is_html,
        title=HOSTILE,
    )
    case = _case(example, plain.prediction)
    source = Source(0, "<script>.jsonl", 1)
    return replace(plain, example=example, case=case, source=source)


def write_example_page(
    path: Path,
    questions: Iterable[Question],
    name: str = "profile",
    comparable: str = "yes",
    scores: Mapping[str, float] | None = None,
) -> None:
    """Writes the page of questions that are all annotated; the run has further ``scores``."""
    questions = list(questions)
    has_other = questions[0].other is not None
    changed = sum(one.changed for one in questions)
    metrics = METRICS | {"speed_comparable": comparable, "metrics": {**SCORES, **(scores or {})}}
    view = RunView(
        description={"profile": name, "data": name, name: name},
        metrics=metrics,
        stages=STAGES,
        thresholds={"long": 0.1},
        other=METRICS if has_other else None,
        remarks=[row(one).note for one in (metrics, METRICS)],
        comparison=cells([row(metrics, name="runs/mine"), row(METRICS, name="runs/other")])
        if has_other
        else None,
        changed=changed if has_other else None,
    )
    write_page(path, questions, len(questions), view)
