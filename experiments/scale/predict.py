"""The time of a corpus on a number of workers, from what one page costs.

A job reads every file twice before it starts, to check it and for its digest, and writes all
answers in the end; both is the work of the machine that submits it. Between these the workers
share the pages:

    time = start + pages * (check + merge) + pages * worker / W

A worker spends ``worker`` = read + (n - 1) * skip + windows + model + decide + encode on a page. Of
a file that n workers share, each passes over what the others take, since gzip has to be read from
the start. Nothing else grows with W: no page is sent from one worker to another.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from nq.beam.merge import shares

CHECK = "check"
START = "start"
MERGE = "merge"
SKIP = "skip"
WORKER_STAGES = ("read", "windows", "model", "decide", "encode")


@dataclass(frozen=True)
class Corpus:
    """Questions to answer, each with its page, and into how many files they are divided."""

    name: str
    examples: int
    files: int


CORPORA = (
    Corpus("NQ dev", 7_830, 5),
    Corpus("NQ train", 307_373, 50),
    Corpus("6.8 million pages x 10 questions", 68_000_000, 6_800),
)
"""NQ in the files in which it is published; a Wikipedia in files of 10,000 questions."""


def predicted(costs: Mapping[str, float], corpus: Corpus, workers: int) -> dict[str, float]:
    """Returns the seconds of a corpus by stage, for workers with one core each.

    ``costs`` are the seconds of each stage for one example, and ``start`` those for a worker.
    """
    per_file = len(shares(corpus.files, workers)) / corpus.files
    busy = min(workers, corpus.files * per_file, corpus.examples)
    per_worker = corpus.examples / busy
    stages = {name: per_worker * costs[name] for name in WORKER_STAGES}
    return {
        CHECK: corpus.examples * costs[CHECK],
        START: costs[START],
        SKIP: per_worker * (per_file - 1) * costs[SKIP],
        **stages,
        MERGE: corpus.examples * costs[MERGE],
    }
