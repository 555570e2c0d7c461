"""The recipes of the bundled models: where each starts, its stages, and the pair of both.

Each stage is a run of ``nq train`` on records of the training data. A recipe is data;
``experiments.make_model`` carries it out. Both models start from e5-small-v2.

- ``small``: ``reading`` (all questions on Wikipedia, in short windows), ``practice`` (the reviews
  too: other windows, more questions), ``natural`` (real questions: the wording of queries, tables
  and lists, yes and no), ``pages`` (longer pages and windows: rejection of wrong blocks),
  ``claims`` (all questions on Wikipedia again, and yes/no questions made of them), ``long`` (longer
  pages again).
- ``ranker``: the dual encoder, which needs no training.
- ``ranker+small``: ``ranker`` ranks the blocks of a page, and ``small`` reads the best.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.claims import claims
from experiments.distractors import lengthened
from experiments.pretrained import sentence_encoder
from experiments.training_data import Record

NQ = ("nq", "nq-swap")
NATURAL = (*NQ, "boolq")
REAL = (*NATURAL, "nq-qed", "tydi")
OTHER_WIKI = ("squad1", "squad2", "squadshifts-wiki", "timeqa")
WIKI = (*NATURAL, *OTHER_WIKI)
ALL_WIKI = (*REAL, *OTHER_WIKI)
REVIEWS = ("squadshifts-amazon", "squadshifts-reddit")
SEED = 5


@dataclass(frozen=True)
class Part:
    """Some records of a stage.

    Args:
        sources: values of the field ``source`` of the records.
        sample: number of records to draw at random; all without it.
        distractors: the fewest and the most blocks of other pages that are added to each page.
        as_claims: whether yes/no questions are made of the records (``experiments.claims``).
    """

    sources: tuple[str, ...]
    sample: int | None = None
    distractors: tuple[int, int] | None = None
    as_claims: bool = False

    def records(self, records: Sequence[Record]) -> Iterable[Record]:
        """Returns the records of this part, with longer pages if it has distractors."""
        chosen = [record for record in records if record["source"] in self.sources]
        if self.sample is not None:
            chosen = random.Random(SEED).sample(chosen, min(self.sample, len(chosen)))
        if self.as_claims:
            chosen = list(claims(chosen, SEED))
        if not self.distractors:
            return chosen
        pages = [record for record in records if record["source"] in ALL_WIKI]
        return lengthened(chosen, pages, *self.distractors, SEED)


@dataclass(frozen=True)
class Stage:
    """One training stage.

    Args:
        name: of its folder.
        parts: of its training data.
        options: of ``nq train``.
        start: the stages the mean of whose weights it starts from; by default the one before.
    """

    name: str
    parts: tuple[Part, ...]
    options: str
    start: tuple[str, ...] = ()

    def records(self, records: Sequence[Record]) -> Iterator[Record]:
        """Yields the records of the stage, of the whole training data in simplified NQ format."""
        for part in self.parts:
            yield from part.records(records)


@dataclass(frozen=True)
class Pair:
    """Two models by their names, and how many blocks of a page the reader reads."""

    ranker: str
    reader: str
    read_blocks: int


@dataclass(frozen=True)
class Recipe:
    """How a model is made.

    Args:
        start: writes the folder with the pretrained encoder.
        store: type of the stored weights of the model (``nq.model.config.STORES``).
        options: of ``nq train`` in all stages.
        stages: in order.
        result: the stages the mean of whose weights is the result, by default the last one;
            ``NAME-start`` is the mean with which the stage NAME started.
        prefixes: of questions and blocks, where the model is the dual encoder of the encoder, with
            no stages.
    """

    start: Callable[[Path], Path]
    store: str
    options: str = ""
    stages: tuple[Stage, ...] = ()
    result: tuple[str, ...] = ()
    prefixes: tuple[str, str] | None = None


SMALL = Recipe(
    start=sentence_encoder,
    store="int8",
    options="--precision bfloat16 --dropout 0",
    stages=(
        Stage(
            "reading",
            (Part(WIKI),),
            "--max-seq-length 192 --doc-stride 96 --epochs 1 --learning-rate 2e-4 --warmup 0.05 "
            "--negatives 0.05",
        ),
        Stage(
            "practice",
            (Part(WIKI + REVIEWS),),
            "--max-seq-length 192 --doc-stride 128 --epochs 1 --learning-rate 1.5e-4 --warmup 0.04 "
            "--negatives 0.1 --seed 6",
        ),
        Stage(
            "natural",
            (Part(NATURAL), Part(OTHER_WIKI, sample=12000, as_claims=True), Part(OTHER_WIKI, 2000)),
            "--max-seq-length 192 --doc-stride 128 --epochs 2 --learning-rate 1e-4 --warmup 0.05 "
            "--negatives 0.1 --seed 7",
        ),
        Stage(
            "pages",
            (
                Part(NATURAL, distractors=(12, 12)),
                Part(OTHER_WIKI, sample=1500, distractors=(12, 12)),
            ),
            "--max-seq-length 256 --doc-stride 192 --epochs 1 --learning-rate 8e-5 --warmup 0.05 "
            "--negatives 0.12 --seed 8",
        ),
        Stage(
            "claims",
            (Part(WIKI), Part(NQ + OTHER_WIKI, as_claims=True)),
            "--max-seq-length 192 --doc-stride 128 --epochs 1 --learning-rate 1.2e-4 --warmup 0.04 "
            "--negatives 0.1 --seed 11",
            start=("pages", "practice"),
        ),
        Stage(
            "long",
            (
                Part(NATURAL, distractors=(12, 12)),
                Part(OTHER_WIKI, sample=800, distractors=(12, 12)),
                Part(NQ + OTHER_WIKI, sample=4100, distractors=(12, 12), as_claims=True),
            ),
            "--max-seq-length 256 --doc-stride 192 --epochs 1 --learning-rate 6e-5 --warmup 0.05 "
            "--negatives 0.1 --seed 12",
        ),
        Stage(
            "real",
            (Part(REAL), Part(OTHER_WIKI, sample=3000)),
            "--max-seq-length 192 --doc-stride 128 --epochs 1 --learning-rate 1.2e-4 --warmup 0.05 "
            "--negatives 0.12 --seed 21",
            start=("long", "claims", "claims-start"),
        ),
        Stage(
            "whole",
            (Part(REAL, distractors=(4, 40)), Part(OTHER_WIKI, 2000, distractors=(4, 40))),
            "--max-seq-length 256 --doc-stride 192 --epochs 0.8 --learning-rate 1e-4 --warmup 0.05 "
            "--negatives 0.08 --seed 22",
        ),
    ),
    result=("whole", "real"),
)
RANKER = Recipe(sentence_encoder, "int8", prefixes=("query: ", "passage: "))
RECIPES: dict[str, Recipe | Pair] = {
    "small": SMALL,
    "ranker": RANKER,
    "ranker+small": Pair("ranker", "small", read_blocks=4),
}
"""In the order in which they are made: the models of a pair first."""
