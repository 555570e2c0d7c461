"""The recipes of the models ``ranker``, ``base`` and ``small``: where each starts, and its stages.

Each stage is a run of ``nq train`` on records of the training data. A recipe is data;
``experiments.make_model`` carries it out.

- ``ranker``: the dual encoder of MiniLM, which needs no training.
- ``small``: ``wiki`` (all questions on Wikipedia: extraction, and rejection of wrong blocks),
  ``practice`` (the reviews too: extraction, on twice as many questions), ``natural`` (Natural
  Questions and BoolQ: the wording of queries, yes and no), ``reading`` (all questions in short
  windows: more questions per hour), ``pages`` (other samples, longer pages: rejection of blocks),
  ``taught`` (the labels and the probabilities of ``base``, on a sample of the windows of longer
  pages).
- ``base``: ``practice`` (all of Natural Questions and BoolQ, samples of the others) and ``natural``
  (Natural Questions and BoolQ on longer pages).

The stage taught starts with the mean of the weights after natural and pages, since each is better
at what the other is worse at.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments import pretrained
from experiments.distractors import lengthened

Record = dict[str, Any]

NATURAL = ("nq", "boolq")
OTHER_WIKI = ("squad2", "squadshifts-wiki", "timeqa")
WIKI = (*NATURAL, *OTHER_WIKI)
REVIEWS = ("squadshifts-amazon", "squadshifts-reddit")
SEED = 5


@dataclass(frozen=True)
class Part:
    """Some records of a stage.

    Args:
        sources: values of the field ``source`` of the records.
        sample: number of records to draw at random; all without it.
        distractors: number of blocks of other pages that are added to each page.
    """

    sources: tuple[str, ...]
    sample: int | None = None
    distractors: int = 0

    def records(self, records: Sequence[Record]) -> Iterable[Record]:
        """Returns the records of this part, with longer pages if it has distractors."""
        chosen = [record for record in records if record["source"] in self.sources]
        if self.sample is not None:
            chosen = random.Random(SEED).sample(chosen, min(self.sample, len(chosen)))
        if not self.distractors:
            return chosen
        pages = [record for record in records if record["source"] in WIKI]
        return lengthened(chosen, pages, self.distractors)


@dataclass(frozen=True)
class Stage:
    """One training stage.

    Args:
        name: of its folder.
        parts: of its training data.
        options: of ``nq train``.
        start: the stages with the mean of whose weights it starts; by default the one before it.
        teacher: the recipe whose model teaches it, if any.
    """

    name: str
    parts: tuple[Part, ...]
    options: str
    start: tuple[str, ...] = ()
    teacher: str | None = None

    def records(self, records: Sequence[Record]) -> Iterator[Record]:
        """Yields the records of the stage.

        Args:
            records: the whole training data, in simplified NQ format, with ``source``.
        """
        for part in self.parts:
            yield from part.records(records)


@dataclass(frozen=True)
class Recipe:
    """How a model is made.

    Args:
        start: writes the folder with the pretrained encoder.
        options: of ``nq train`` in all stages.
        stages: in order; the result is the model of the last one.
        store: type of the stored weights of the model (``nq.config.StorageConfig``).
        dual_encoder: whether the result is the dual encoder of that model.
    """

    start: Callable[[Path], Path]
    options: str
    stages: tuple[Stage, ...]
    store: str
    dual_encoder: bool = False

    @property
    def teachers(self) -> tuple[str, ...]:
        """The recipes whose models teach stages."""
        return tuple(stage.teacher for stage in self.stages if stage.teacher)


SMALL = Recipe(
    start=pretrained.minilm,
    options="--max-seq-length 256 --precision bfloat16 --dropout 0",
    stages=(
        Stage(
            "wiki",
            (Part(WIKI),),
            "--epochs 0.668 --learning-rate 2e-4 --warmup 0.06 --negatives 0.12",
        ),
        Stage(
            "practice",
            (Part(WIKI + REVIEWS),),
            "--doc-stride 192 --epochs 0.8 --learning-rate 2e-4 --warmup 0.05 --negatives 0.15",
        ),
        Stage(
            "natural",
            (Part(NATURAL),),
            "--doc-stride 192 --epochs 2.5 --learning-rate 1e-4 --warmup 0.05 --negatives 0.2",
        ),
        Stage(
            "reading",
            (Part(WIKI + REVIEWS),),
            "--max-seq-length 192 --doc-stride 160 --epochs 1.2 --learning-rate 2e-4 --warmup 0.04 "
            "--negatives 0.2 --seed 77",
        ),
        Stage(
            "pages",
            (Part(NATURAL, distractors=12), Part(OTHER_WIKI, sample=1500, distractors=12)),
            "--doc-stride 192 --epochs 0.7 --learning-rate 8e-5 --warmup 0.05 --negatives 0.12 "
            "--seed 78",
        ),
        Stage(
            "taught",
            (Part(NATURAL, distractors=8), Part(OTHER_WIKI, sample=4000)),
            "--doc-stride 192 --epochs 2 --learning-rate 1e-4 --warmup 0.05 --negatives 0.12 "
            "--seed 79 --teacher-profile mixed+grappler+frozen+buckets",
            start=("natural", "pages"),
            teacher="base",
        ),
    ),
    store="compact",
)
BASE = Recipe(
    start=pretrained.mpnet,
    options="--max-seq-length 256 --doc-stride 192 --precision bfloat16 --dropout 0 "
    "--batch-size 16 --layer-decay 0.95 --save-every 50",
    stages=(
        Stage(
            "practice",
            (Part(NATURAL, distractors=6), Part(OTHER_WIKI, sample=5000), Part(REVIEWS, 2000)),
            "--epochs 1 --learning-rate 1e-4 --warmup 0.08 --negatives 0.08 --frozen-layers 5",
        ),
        Stage(
            "natural",
            (Part(NATURAL, distractors=8),),
            "--epochs 1 --learning-rate 5e-5 --warmup 0.05 --negatives 0.15 --frozen-layers 5 "
            "--seed 78",
        ),
    ),
    store="int8",
)
RANKER = Recipe(pretrained.minilm, options="", stages=(), store="int8", dual_encoder=True)
RECIPES = {"ranker": RANKER, "base": BASE, "small": SMALL}
"""In the order in which they are made: a teacher before its student."""
