"""``recheck``: close calls are decided again, by all windows in float32.

Rounding changes an answer only where another one is nearly as good. How near, the decision knows
(``nq.postprocess.margin``): an example whose answer is nearer to another one than ``CLOSE``,
times what the decision counts evidence for, is computed again, under the same profile without
what makes it less exact.

Of the answers that bfloat16 changed on the even half of dev (7 of 283, as many by TensorFlow as by
OpenVINO) none lay further away, of those that 8 bits changed 3 of 20.
"""

from __future__ import annotations

from nq.config import DecisionConfig
from nq.inference.loading import Loader
from nq.inference.predictor import Columns, Predictor, rows_of
from nq.inference.profile import Profile
from nq.postprocess.decision import RULES
from nq.preprocess.features import features
from nq.records import Example, WindowScores

CLOSE = {"mixed": 0.065, "int8": 0.43}
"""Differences of evidence, which is a sum of logits."""


class Recheck:
    """Decides which examples to compute again, and does.

    Args:
        loader: of the model.
        profile: that the scores were computed under.
        decision: how scores become answers, by a rule that tells how close a call was.
    """

    def __init__(self, loader: Loader, profile: Profile, decision: DecisionConfig) -> None:
        self.loader, self.decision = loader, decision
        counts = max(decision.weights.evidence, decision.weights.short_evidence)
        self._close = counts * max(CLOSE[name] for name in profile.names & CLOSE.keys())
        self._exactly = Profile(profile.names - CLOSE.keys() - {"refine", "recheck"})
        self._exact: Predictor | None = None

    def scores(self, example: Example, found: WindowScores) -> Columns | None:
        """The columns of all windows of a close call, as ``Predictor.scores`` gives them.

        Args:
            example: the page.
            found: what the profile made of it.
        """
        closeness = RULES[self.decision.rule].closeness
        if closeness is None or closeness(example, found, self.decision) >= self._close:
            return None
        if self._exact is None:
            self._exact = self.loader.predictor(self._exactly)
        with self._exact.ready():
            rows = rows_of(features(example, self.loader.tokenizer, self.loader.windows))
            return {**self._exact.scores(rows), "window_ids": rows["window_ids"]}
