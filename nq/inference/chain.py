"""The way from a question to its answer: example -> windows -> scores -> decision.

Readers, runs and the evaluation during a training iterate over ``answers``. The server and Beam
batch the examples themselves and call the steps of it: ``windowed``, a scorer, ``decide``.
"""

from collections.abc import Iterable, Iterator

from nq.config import DecisionConfig, WindowConfig
from nq.inference.scorer import Progress, Scored, Scorer, no_progress, score_examples
from nq.postprocess.decision import RankedPrediction, decide
from nq.preprocess.features import features
from nq.preprocess.tokenizers.base import Tokenizer
from nq.records import Example, Windowed


def windowed(example: Example, tokenizer: Tokenizer, windows: WindowConfig) -> Windowed:
    """Returns an example with its windows; ``ValueError`` if they are too many."""
    return Windowed(example, features(example, tokenizer, windows).rows)


def answers(
    scorer: Scorer,
    examples: Iterable[Windowed],
    decision: DecisionConfig,
    progress: Progress = no_progress,
) -> Iterator[tuple[Scored, RankedPrediction]]:
    """Yields each example with its scores and the decision, in order; a few are in memory."""
    for scored in score_examples(scorer, examples, progress):
        yield scored, decide(scored.example, scored.scores, decision)
