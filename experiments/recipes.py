"""The recipes of the models ``small``, ``ranker`` and ``base``: where each starts, and its stages.

Each stage is a run of ``nq train`` on records of the training data. A recipe is data;
``experiments.make_model`` carries it out.

- ``small``: ``wiki`` (all questions on Wikipedia: extraction, and rejection of wrong blocks),
  ``practice`` (the reviews too: extraction, on twice as many questions), ``natural`` (Natural
  Questions and BoolQ: the wording of queries, yes and no), ``reading`` (all questions in short
  windows: more questions per hour), ``pages`` (other samples, longer pages: rejection of blocks).
  The result is the mean of the weights after natural and pages, since each is better at what the
  other is worse at.
- ``ranker``: the dual encoder of MiniLM, which needs no training; ``small`` reads for it.
- ``base``: the dual encoder of MPNet, which ranks again what ``small`` ranks best.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments import pretrained
from experiments.distractors import lengthened
from nq.config import BLOCK, WindowConfig

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
    """

    name: str
    parts: tuple[Part, ...]
    options: str

    def records(self, records: Sequence[Record]) -> Iterator[Record]:
        """Yields the records of the stage.

        Args:
            records: the whole training data, in simplified NQ format, with ``source``.
        """
        for part in self.parts:
            yield from part.records(records)


@dataclass(frozen=True)
class Pair:
    """With which model a dual encoder answers.

    Args:
        role: of the other model: ``first_model`` or ``second_model`` (``ModelSettings``).
        name: of the other model.
        read_blocks: blocks of a page that the second of the two gets.
    """

    role: str
    name: str
    read_blocks: int


@dataclass(frozen=True)
class Recipe:
    """How a model is made.

    Args:
        start: writes the folder with the pretrained encoder.
        store: type of the stored weights of the model (``nq.config.StorageConfig``).
        options: of ``nq train`` in all stages.
        stages: in order.
        result: the stages the mean of whose weights is the result; by default the last one.
        pair: of a model that is the dual encoder of the encoder, with no stages.
        windows: of a dual encoder; by default those of ``nq convert --dual-encoder``.
    """

    start: Callable[[Path], Path]
    store: str
    options: str = ""
    stages: tuple[Stage, ...] = ()
    result: tuple[str, ...] = ()
    pair: Pair | None = None
    windows: WindowConfig | None = None


SMALL = Recipe(
    start=pretrained.minilm,
    store="compact",
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
    ),
    result=("natural", "pages"),
)
RANKER = Recipe(pretrained.minilm, "int8", pair=Pair("second_model", "small", read_blocks=8))
BASE = Recipe(
    pretrained.mpnet,
    "int8",
    pair=Pair("first_model", "small", read_blocks=5),
    windows=WindowConfig(max_seq_length=256, doc_stride=192, window_scope=BLOCK),
)
RECIPES = {"small": SMALL, "ranker": RANKER, "base": BASE}
"""In the order in which they are made: the other model of a pair first."""
