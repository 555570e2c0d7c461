"""Measures a model on held-out questions during its training, at the thresholds of the best F1."""

import logging
from collections.abc import Callable, Iterator

from nq.config import DecisionConfig, WindowConfig
from nq.evaluation.evaluate import Evaluation, judge
from nq.formats.outputs import encode_prediction
from nq.inference.batches import Shape
from nq.inference.chain import answers, windowed
from nq.inference.engine import Computation, Network
from nq.inference.predictor import Predictor
from nq.inference.profile import Profile
from nq.inference.reduction import TopK
from nq.postprocess.decision import RULES
from nq.preprocess.tokenizers.base import Tokenizer
from nq.questions import Questions
from nq.records import DeadLetter, Example
from nq.training.job import MEASURED, Figures

log = logging.getLogger(__name__)

METRICS = ("micro_f1_best", "long-best-threshold-f1", "short-best-threshold-f1")
"""The metrics of ``nq_eval`` that are called ``MEASURED`` here, in that order."""
BATCH_SIZE = 16
PROFILE, DECISION = Profile.parse("grappler+buckets"), DecisionConfig()


def held_out(
    questions: Questions, tokenizer: Tokenizer, windows: WindowConfig, network: Network
) -> Callable[[], Figures]:
    """Returns a function that measures the present weights of a model on annotated questions."""

    def examples() -> Iterator[Example]:
        return (example for example in questions.examples() if example.annotations)

    bad = sum(isinstance(item, DeadLetter) for _, item in questions)
    if bad:
        log.warning("bad records of the held-out files, which are skipped: %d", bad)
    if not any(examples()):
        files = ", ".join(questions.files)
        raise ValueError(f"no annotations in {files}: give annotated questions to --dev")
    rule = RULES[DECISION.rule]
    computation = Computation(network, PROFILE, TopK(rule.k, rule.text_only))
    predictor = Predictor(computation, Shape(BATCH_SIZE, windows.max_seq_length), None)

    def measure() -> Figures:
        evaluation = Evaluation()
        pages = (windowed(example, tokenizer, windows) for example in examples())
        for scored, ranked in answers(predictor, pages, DECISION):
            evaluation.add(judge(scored.example, encode_prediction(ranked.prediction)))
        metrics = evaluation.metrics()
        return {name: metrics[key] for name, key in zip(MEASURED, METRICS, strict=True)}

    return measure
