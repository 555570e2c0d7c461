"""Measures how often the block with the answer is among those that are read of many documents.

    python -m experiments.collection --data dev.jsonl.gz --half odd --ranker ranker

The pages of the data are the documents, and each annotated question is asked about all of them. The
command ranks all blocks by BM25, by the cosine of a dual encoder, and by both, as ``nq ask`` does.
Each score is that of the block alone, or, as in ``nq.collection``, with that of the best block of
its document. With ``--weights`` it tries weights of the cosine. It prints which share of the
questions has a gold block among the first N. A block with the words of the gold one counts too.
Vectors are kept in the user's cache.
"""

import argparse
import contextlib
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

import numpy as np

from experiments import command
from experiments.command import add_half, in_half
from nq.collection import COSINE, ranking
from nq.commands import arguments
from nq.errors import Error
from nq.index import BlockIndex, Document
from nq.inference.load import ScorerSpec, load_scorer, vector_scorer
from nq.inference.profile import reader_profile
from nq.model.model import Model
from nq.postprocess.blocks import bm25, lower_words
from nq.progress import ProgressBars
from nq.questions import read_examples
from nq.records import Example

DEPTHS = (8, 19, 32, 47, 100)
BATCH_SIZE = 16


def _options(parser: argparse.ArgumentParser) -> None:
    arguments.add_data(parser)
    add_half(parser, default="even")
    parser.add_argument(
        "--ranker",
        metavar="MODEL",
        help="folder or name of a dual encoder",
    )
    text = "weights of the cosine beside BM25"
    parser.add_argument("--weights", type=float, nargs="+", default=[COSINE], help=text)


def measure(args: argparse.Namespace) -> int:
    """Runs the command."""
    examples = list(read_examples(args.data, pages=arguments.pages(args)))
    asked = [e for e in examples if in_half(e.example_id, args.half) and _gold(e)]
    if not asked:
        raise Error("no question has a gold block: give annotated data, and a half that has some")
    first = first_ranks(examples, asked, args.ranker, args.weights)
    shares = {
        f"{name} at {depth}": float(np.mean([rank < depth for rank in ranks]))
        for name, ranks in first.items()
        for depth in DEPTHS
    }
    return command.show({"questions": len(asked), **shares}, args)


def first_ranks(
    examples: Sequence[Example],
    asked: Sequence[Example],
    ranker: str | None,
    weights: Sequence[float] = (COSINE,),
) -> dict[str, list[int]]:
    """Returns the rank, from 0, of the first gold block of each question, for each ranking."""
    index = _index(ranker) if ranker else None
    pages = list({tuple(example.tokens): example for example in examples}.values())
    part = index.ranker if index else None
    documents = [Document.of(page, part) for page in pages]
    blocks = [tuple(words.split(" ")) for one in documents for words in one.words]
    numbers = np.repeat(np.arange(len(pages)), [len(one.blocks) for one in documents])
    first = defaultdict[str, list[int]](list)
    with ProgressBars() as bars:
        for example in asked:
            by_words = bm25(example.question, blocks)
            scores = {"bm25": by_words}
            if index is not None:
                cosines = index.cosines(
                    example.question, documents, partial(bars, "encoding blocks")
                )
                assert cosines is not None
                scores["cosine"] = cosines
                for weight in weights:
                    scores[f"bm25 + {weight:g} cosine"] = by_words + weight * cosines
            gold = _gold(example)
            for name, one in scores.items():
                orders = {
                    name: np.argsort(-one, kind="stable").tolist(),
                    f"{name} with document": ranking(one, numbers),
                }
                for order_name, order in orders.items():
                    ranks = (rank for rank, row in enumerate(order) if blocks[row] in gold)
                    first[order_name].append(next(ranks, len(blocks)))
    return first


def _index(model: str) -> BlockIndex:
    """Returns an index by a dual encoder, which encodes all blocks."""
    opened = Model.open(model)
    spec = ScorerSpec(
        opened,
        reader_profile(),
        BATCH_SIZE,
        adaptive=True,
        keeps_vectors=True,
    )
    scorer = vector_scorer(load_scorer(spec))
    if scorer is None:
        raise Error(
            f"{opened.folder} is no dual encoder: give one, as nq convert --dual-encoder makes it"
        )
    return BlockIndex(scorer, opened.reader, contextlib.nullcontext(), is_wanted=True)


def _gold(example: Example) -> set[tuple[str, ...]]:
    return {tuple(lower_words(example, a.long)) for a in example.annotations or () if a.long}


main = command.main(measure, _options)
