"""The time of a corpus on a number of workers, from what one page costs.

A job reads every file twice before it starts, to check it and for its digest, and writes all
answers in the end; both is the work of the machine that submits it. Between these the workers
share the pages:

    time = start + pages * (check + merge) + pages * worker / W

A worker spends ``worker`` = read + (n - 1) * skip + windows + model + decide + encode on a page. Of
a file that n workers share, each passes over what the others take, since gzip has to be read from
the start. Nothing else grows with W: no page is sent from one worker to another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from nq.beam.merge import shares

CHECK, START, MERGE, SKIP = "check", "start", "merge", "skip"
WORKER_STAGES = ("read", "windows", "model", "decide", "encode")
SUBMITTER_STAGES = (CHECK, MERGE)


@dataclass(frozen=True)
class Corpus:
    """What is to be answered.

    Args:
        name: for readers.
        examples: questions, each with its page.
        files: into which they are divided.
    """

    name: str
    examples: int
    files: int


CORPORA = (
    Corpus("NQ dev", 7_830, 5),
    Corpus("NQ train", 307_373, 50),
    Corpus("6.8 million pages x 10 questions", 68_000_000, 6_800),
)
"""NQ in the files in which it is published; a Wikipedia in files of 10,000 questions."""


@dataclass(frozen=True)
class Prediction:
    """The time of a corpus.

    Args:
        stages: seconds by stage, those of the workers divided by their number.
    """

    stages: Mapping[str, float]

    @property
    def seconds(self) -> float:
        """Of the whole job."""
        return sum(self.stages.values())

    @property
    def bottleneck(self) -> str:
        """The stage that takes most of the time."""
        return max(self.stages, key=lambda name: self.stages[name])


def predicted(costs: Mapping[str, float], corpus: Corpus, workers: int) -> Prediction:
    """Returns the prediction for a corpus.

    Args:
        costs: seconds of each stage for one example, and ``start`` for a worker.
        corpus: what is answered.
        workers: with one core each.
    """
    per_file = len(shares(corpus.files, workers)) / corpus.files
    busy = min(workers, corpus.files * per_file, corpus.examples)
    per_worker = corpus.examples / busy
    stages = {name: per_worker * costs[name] for name in WORKER_STAGES}
    return Prediction(
        {
            CHECK: corpus.examples * costs[CHECK],
            START: costs[START],
            SKIP: per_worker * (per_file - 1) * costs[SKIP],
            **stages,
            MERGE: corpus.examples * costs[MERGE],
        }
    )


def price(prediction: Prediction, workers: int, dollars_per_hour: float) -> float:
    """Returns what the cores of a job cost, that of the submitting machine too.

    Args:
        prediction: of the job.
        workers: cores that are paid for as long as it takes.
        dollars_per_hour: of one core.
    """
    return prediction.seconds / 3600 * (workers + 1) * dollars_per_hour
