"""Scores predictions against the gold answers of any input format, by the official metrics."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nq.evaluation import nq_eval, text_match
from nq.evaluation.nq_eval import Verdict
from nq.evaluation.official import FileSpan, read_predictions, token_spans
from nq.formats import input_files
from nq.formats.outputs import byte_span
from nq.formats.own_data import PageFolder
from nq.questions import page_folder, read_examples
from nq.records import Annotation, Example, ExampleId, Prediction, Span, YesNo


@dataclass(frozen=True, slots=True)
class JudgedPrediction:
    """A prediction and the gold of its example, reduced to what the metrics need.

    ``gold`` is ``None`` without annotations, ``text`` where gold is no text, and ``verdict``, which
    is by the text if there is one, without any gold:

    - right: gold's short answer, or its long one where gold has no short one;
    - passage: its long answer, and no short one, or a text where gold is yes or no. Yes or no of
      own data names no passage, so that every long answer is one;
    - wrong: another answer; extra: any answer, a long one too, although gold has none;
    - missed: no answer, although gold has one; null: no answer, as in gold.
    """

    prediction: Prediction
    gold: list[Annotation] | None
    text: text_match.TextScore | None
    verdict: Verdict | None


def judge(example: Example, prediction: Prediction) -> JudgedPrediction:
    """Compares a prediction with the gold of its example."""
    gold = example_gold(example) or None
    text = text_score(example, prediction)
    verdict = None if gold is None and text is None else _verdict(gold or [], prediction, text)
    return JudgedPrediction(prediction, gold, text, verdict)


def _verdict(
    gold: Sequence[Annotation],
    prediction: Prediction,
    text: text_match.TextScore | None,
) -> Verdict:
    long, short = nq_eval.decisions_of_one(gold, prediction)
    is_right = long.correct
    if not (long.has_gold or short.has_gold or (text and text.has_answer)):
        return Verdict.EXTRA if prediction.answered else Verdict.NULL
    if text is not None or short.has_gold:
        is_right = short.predicted and (short.correct if text is None else text.exact_match)
    if is_right:
        return Verdict.RIGHT
    is_text = prediction.yes_no is YesNo.NONE and any(one.yes_no is not YesNo.NONE for one in gold)
    if long.correct and (is_text or not short.predicted):
        return Verdict.PASSAGE
    return Verdict.WRONG if prediction.answered else Verdict.MISSED


class Evaluation:
    """Collects gold and predictions example by example, a few numbers each and no text.

    It counts the examples by verdict, those without gold, those that are answered (by more than a
    null answer), and those whose gold is text and not in their page.
    """

    def __init__(self) -> None:
        self.gold: nq_eval.Gold = {}
        self.predictions: nq_eval.Predictions = {}
        self._texts = list[text_match.TextScore]()
        self._verdicts = Counter[Verdict | None]()
        self.text_only = 0
        self.answered = 0

    @property
    def examples(self) -> int:
        return self._verdicts.total()

    @property
    def without_gold(self) -> int:
        return self._verdicts[None]

    @property
    def verdicts(self) -> dict[str, int]:
        """The number of answers with each verdict; empty without any gold."""
        return {str(one): self._verdicts[one] for one in Verdict} if any(self._verdicts) else {}

    def add(self, judgment: JudgedPrediction) -> None:
        self._verdicts[judgment.verdict] += 1
        self.answered += judgment.prediction.answered
        if judgment.gold is not None:
            key = judgment.prediction.example_id
            self.gold[key] = judgment.gold
            self.predictions[key] = judgment.prediction
        if judgment.text is not None:
            self._texts.append(judgment.text)
            self.text_only += judgment.gold is None

    def of_texts(self) -> dict[str, float]:
        """Returns the metrics of gold that is text; empty without any."""
        return text_match.metrics(self._texts)

    def metrics(self) -> dict[str, float]:
        """Returns all metrics; empty without any gold."""
        if not self.gold:
            return self.of_texts()
        return nq_eval.score(self.gold, self.predictions, one_annotator=True) | self.of_texts()


def text_score(
    example: Example,
    prediction: Prediction,
) -> text_match.TextScore | None:
    """Returns exact match and F1 of an answer; ``None`` if the example's gold is no text."""
    if example.answers is None:
        return None
    answer = example.short_answer(token_spans(prediction.shorts), prediction.yes_no)
    if example.passages is None:
        return text_match.score_text(example.answers, answer)
    score = text_match.score_text(example.answers, answer, text_match.Rule.NQ_OPEN)
    return replace(score, rank=example.answer_rank or 0) if score.has_answer else score


def evaluate(
    gold: Sequence[str | Path],
    predictions: str | Path,
    *,
    pages: PageFolder | str | Path | None = None,
) -> dict[str, float]:
    """Returns the official metrics of a file of predictions, micro-F1s and, of texts, exact match.

    Bad records, for which a run gives no prediction either, are skipped with a warning; predictions
    for records without gold, too.

    Args:
        gold: annotated files, globs or folders in any input format.
        predictions: a ``predictions.json`` in the official format.
        pages: the folder of the pages that questions name.

    Raises:
        OSError: a file cannot be read.
        ValueError: there is no gold, an argument has the wrong type, or the ids of gold and
            predictions differ.
    """
    paths = input_files.find_files(input_files.path_list("gold", gold))
    return evaluation_of(paths, predictions, page_folder(pages)).metrics()


def evaluation_of(
    gold: Sequence[str],
    predictions: str | Path,
    pages: PageFolder | None = None,
) -> Evaluation:
    """Evaluates a file of predictions, as ``evaluate`` does."""
    predicted = read_predictions(Path(input_files.path_text(predictions)))
    evaluation = Evaluation()
    scored = set[ExampleId]()
    others = set[ExampleId]()
    with input_files.unchanged(gold):
        for example in read_examples(gold, skip_bad=True, pages=pages):
            key = example.example_id
            judgment = judge(example, predicted.get(key, Prediction(key)))
            (others if judgment.verdict is None else scored).add(key)
            evaluation.add(judgment)
    if not scored:
        raise ValueError(f"no annotations in {', '.join(gold)}: give annotated data")
    nq_eval.check_ids(scored, predicted.keys() - others)
    return evaluation


def example_gold(example: Example) -> list[Annotation]:
    """Returns the answers of an example's annotators, or each place of gold that is text.

    Where gold lacks the passage of yes or no, every long answer is right. Where no passage of a
    retriever has the answer, none is.
    """
    if example.lost_at_retrieval:
        behind = len(example.tokens)
        behind_the_page = Span(behind, behind + 1)
        return [nq_eval.TextPlace(behind_the_page, None, (behind_the_page,), YesNo.NONE)]
    kind = Annotation if example.answers is None else nq_eval.TextPlace
    gold = []
    for one in example.annotations or ():
        longs = _with_bytes(example, [one.long] if one.long else [])
        if example.lacks_passage:
            longs = [nq_eval.ANY_PASSAGE]
        shorts = _with_bytes(example, one.shorts)
        gold.append(kind(longs[0] if longs else None, one.candidate, tuple(shorts), one.yes_no))
    return gold


def _with_bytes(example: Example, spans: Iterable[Span]) -> list[Span]:
    """Returns the spans that are not empty, with their bytes."""
    return [
        FileSpan(*span.tokens, *byte_span(span, example.token_bytes))
        for span in spans
        if span.start < span.end
    ]


def expected_texts(
    example: Example,
    in_words: Callable[[Annotation], str],
) -> list[str]:
    """Returns the right answers, that of the most annotators first; ``in_words`` returns one."""
    texts: Iterable[str] | None = example.answers
    if texts is None:
        texts = map(in_words, accepted_answers(example))
    return [text for text, _ in Counter(texts).most_common() if text]


def accepted_answers(example: Example) -> list[Annotation]:
    """Returns the gold answers of which a correct prediction must equal one.

    They are the answers of the annotators who gave a short one if gold has a short answer; else the
    long answers alone; none if gold has neither, so that a null prediction is correct.
    """
    gold = example_gold(example)
    long, short = nq_eval.decisions_of_one(gold, Prediction(example.example_id))
    pairs = zip(example.annotations or (), gold, strict=True)
    if short.has_gold:
        return [annotation for annotation, one in pairs if one.has_short]
    if not long.has_gold:
        return []
    return [
        replace(annotation, shorts=(), yes_no=YesNo.NONE) for annotation, one in pairs if one.long
    ]
