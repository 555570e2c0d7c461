"""Counts how often the gold block is among the blocks of a page that rank best without a model.

    python -m experiments.block_recall --data nq-whole-dev.jsonl.gz nq-whole-train.jsonl.gz

By BM25 alone, and as ``prune`` ranks (``nq.inference.prune.PRIOR``), which tells how many blocks
``prune`` has to keep. Examples with odd ids count, unless ``--half all`` is given.
"""

import argparse

import numpy as np

from experiments import Values, command
from experiments.command import add_half, in_half, markdown
from nq.commands import arguments
from nq.config import RankingWeights
from nq.errors import Error
from nq.formats.input_files import find_files
from nq.inference.prune import PRIOR
from nq.postprocess.blocks import Blocks
from nq.postprocess.fit import gold_longs
from nq.questions import Questions

NUMBERS = (4, 8, 16, 32)
RANKINGS = {"BM25": RankingWeights(bm25=1.0), "BM25, place and length": PRIOR}


def _options(parser: argparse.ArgumentParser) -> None:
    arguments.add_data(parser, note=" of annotated data")
    add_half(parser, default="odd")


def measure(args: argparse.Namespace) -> int:
    """Runs the command."""
    ranks: dict[str, list[int]] = {name: [] for name in RANKINGS}
    for example in Questions(tuple(find_files(args.data))).examples():
        gold = gold_longs(example)
        if not gold or not in_half(example.example_id, args.half):
            continue
        blocks = Blocks.of(example)
        spans = [example.candidates[i].span for i in blocks.candidates.tolist()]
        is_gold = np.array([span in gold for span in spans])
        for name, weights in RANKINGS.items():
            order = np.argsort(-blocks.prior(weights), kind="stable")
            found = np.flatnonzero(is_gold[order])
            ranks[name].append(int(found[0]) if len(found) else len(spans))
    n_pages = len(ranks["BM25"])
    if not n_pages:
        raise Error(f"the half {args.half!r} of the examples has no gold long answers")
    rows = [
        {"ranking": name, **{f"among {k}": sum(r < k for r in of_page) / n_pages for k in NUMBERS}}
        for name, of_page in ranks.items()
    ]
    return command.show({"pages": n_pages, "rows": rows}, args, table)


def table(result: Values) -> str:
    """Returns the shares as a Markdown table with a row for each ranking."""
    head = (f"{result['pages']} pages", *(f"among {k}" for k in NUMBERS))
    rows = (
        (row["ranking"], *(f"{row[f'among {k}']:.3f}" for k in NUMBERS)) for row in result["rows"]
    )
    return markdown(head, *rows)


main = command.main(measure, _options)
