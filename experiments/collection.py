"""Measures how often the block with the answer is among those that are read of many documents.

    python -m experiments.collection --data dev.jsonl.gz --half odd

The pages of the data are the documents, and each annotated question is asked about all of them. The
command ranks all blocks by BM25 alone, and as ``nq.collection`` does, with the best block of each
document, and prints which share of the questions has a gold block among the first N. A block with
the words of the gold one counts too.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from experiments.halves import add_half, in_half
from nq.collection import ranking
from nq.commands import arguments, terminal
from nq.errors import Error
from nq.formats.inputs import read_examples
from nq.postprocess.blocks import Blocks, bm25, lower_words
from nq.records import Example

DEPTHS = (8, 19, 32, 47, 100)


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.collection",
        description="Measures the recall of the blocks that are read of many documents.",
    )
    arguments.add_data(parser)
    add_half(parser, default="even")
    arguments.add_common(parser)
    return parser


def measure(args: argparse.Namespace) -> int:
    """Runs the command."""
    examples = list(read_examples(args.data, pages=arguments.pages(args)))
    asked = [e for e in examples if in_half(e.example_id, args.half) and _gold(e)]
    if not asked:
        raise Error("no question has a gold block: give annotated data, and a half that has some")
    first = first_ranks(examples, asked)
    shares = {
        f"{name} at {depth}": float(np.mean([rank < depth for rank in ranks]))
        for name, ranks in first.items()
        for depth in DEPTHS
    }
    terminal.print_result({"questions": len(asked), **shares}, args.json)
    return 0


def first_ranks(examples: Sequence[Example], asked: Sequence[Example]) -> dict[str, list[int]]:
    """Returns the rank, from 0, of the first gold block of each question, for both rankings."""
    pages = list({tuple(example.tokens): example for example in examples}.values())
    spans = [[e.candidates[i].span for i in Blocks.of(e).candidates] for e in pages]
    blocks = [lower_words(e, s) for e, own in zip(pages, spans, strict=True) for s in own]
    documents = np.repeat(np.arange(len(pages)), [len(own) for own in spans])
    texts = [tuple(block) for block in blocks]
    first: dict[str, list[int]] = {"bm25": [], "with document": []}
    for example in asked:
        scores, gold = bm25(example.question, blocks), _gold(example)
        alone = np.argsort(-scores, kind="stable").tolist()
        for name, order in zip(first, (alone, ranking(scores, documents)), strict=True):
            ranks = (rank for rank, row in enumerate(order) if texts[row] in gold)
            first[name].append(next(ranks, len(texts)))
    return first


def _gold(example: Example) -> set[tuple[str, ...]]:
    return {tuple(lower_words(example, a.long)) for a in example.annotations or () if a.long}


def main(argv: Sequence[str] | None = None) -> int:
    """Parses arguments and measures."""
    return terminal.run(measure, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
