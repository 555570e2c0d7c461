"""Measures how often the block with the answer is among those that are read of many documents.

    python -m experiments.collection --data dev.jsonl.gz --half odd --ranker ranker

The pages of the data are the documents, and each annotated question is asked about all of them. The
command ranks all blocks by BM25, by the cosine of a dual encoder if one is given, and by both: the
cosine of the best ``CANDIDATES`` by BM25. Each score is that of the block alone, or, as in
``nq.collection``, with that of the best block of its document. It prints which share of the
questions has a gold block among the first N. A block with the words of the gold one counts too.
"""

import argparse
import logging
import time
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from experiments import command
from experiments.command import add_half, in_half
from nq.collection import ranking
from nq.commands import arguments
from nq.errors import Error
from nq.inference.load import ScorerSpec, load_scorer
from nq.inference.profile import reader_profile
from nq.inference.vectors import VectorScorer
from nq.model.model import Model
from nq.postprocess.blocks import Blocks, bm25, lower_words
from nq.preprocess.features import prefix
from nq.progress import ProgressBar
from nq.questions import read_examples
from nq.records import Example, FloatArray

log = logging.getLogger(__name__)

DEPTHS = (8, 19, 32, 47, 100)
CANDIDATES = 200
BATCH_SIZE = 16


def _options(parser: argparse.ArgumentParser) -> None:
    arguments.add_data(parser)
    add_half(parser, default="even")
    parser.add_argument("--ranker", metavar="MODEL", help="folder or name of a dual encoder")


def measure(args: argparse.Namespace) -> int:
    """Runs the command."""
    examples = list(read_examples(args.data, pages=arguments.pages(args)))
    asked = [e for e in examples if in_half(e.example_id, args.half) and _gold(e)]
    if not asked:
        raise Error("no question has a gold block: give annotated data, and a half that has some")
    first = first_ranks(examples, asked, args.ranker)
    shares = {
        f"{name} at {depth}": float(np.mean([rank < depth for rank in ranks]))
        for name, ranks in first.items()
        for depth in DEPTHS
    }
    return command.show({"questions": len(asked), **shares}, args)


def first_ranks(
    examples: Sequence[Example], asked: Sequence[Example], ranker: str | None
) -> dict[str, list[int]]:
    """Returns the rank, from 0, of the first gold block of each question, for each ranking."""
    pages = list({tuple(example.tokens): example for example in examples}.values())
    spans = [[e.candidates[i].span for i in Blocks.of(e).candidates] for e in pages]
    blocks = [lower_words(e, s) for e, own in zip(pages, spans, strict=True) for s in own]
    documents = np.repeat(np.arange(len(pages)), [len(own) for own in spans])
    texts = [tuple(block) for block in blocks]
    questions, whole = [e.question for e in asked], list(map(" ".join, texts))
    cosine = cosines(ranker, questions, whole) if ranker else None
    first = defaultdict[str, list[int]](list)
    for number, example in enumerate(asked):
        by_words = bm25(example.question, blocks)
        both = ranking(by_words, documents)
        alone = np.argsort(-by_words, kind="stable").tolist()
        orders = {"bm25": alone, "bm25 with document": both}
        if cosine is not None:
            one, best = cosine[number], np.array(both[:CANDIDATES])
            orders["cosine"] = np.argsort(-one, kind="stable").tolist()
            orders["cosine with document"] = ranking(one, documents)
            orders[f"cosine of best {CANDIDATES}"] = best[
                ranking(one[best], documents[best])
            ].tolist()
        gold = _gold(example)
        for name, order in orders.items():
            ranks = (rank for rank, row in enumerate(order) if texts[row] in gold)
            first[name].append(next(ranks, len(texts)))
    return first


def cosines(model: str, questions: Sequence[str], blocks: Sequence[str]) -> FloatArray:
    """Returns ``[Q, B]`` the cosine of each question and each block by a dual encoder."""
    part = Model.open(model)
    if not part.reader.config.is_dual_encoder:
        raise Error(
            f"{part.folder} is no dual encoder: give one, as nq convert --dual-encoder makes it"
        )
    scorer = load_scorer(ScorerSpec(part, reader_profile(), BATCH_SIZE, adaptive=True))
    assert isinstance(scorer, VectorScorer)
    windows = part.windows
    tokenizer = part.tokenizer

    def encoded(texts: Sequence[str], text_prefix: str, what: str) -> FloatArray:
        """Returns ``[N, units]``; of a text that is longer than a window its first part counts."""
        head = [tokenizer.cls_id, *prefix(text_prefix, tokenizer)]
        room = windows.max_seq_length - len(head) - 1
        ids = [[*head, *tokenizer.encode_text(text).ids[:room], tokenizer.sep_id] for text in texts]
        with ProgressBar(f"encoding {what}", what) as bar:
            return scorer.encode(ids, lambda done: bar(done, len(ids)))

    started = time.perf_counter()
    of_blocks = encoded(blocks, windows.block_prefix, "blocks")
    log.info("%d blocks encoded in %.0f s", len(blocks), time.perf_counter() - started)
    return encoded(questions, windows.question_prefix, "questions") @ of_blocks.T


def _gold(example: Example) -> set[tuple[str, ...]]:
    return {tuple(lower_words(example, a.long)) for a in example.annotations or () if a.long}


main = command.main(measure, _options)

if __name__ == "__main__":
    raise SystemExit(main())
