"""Makes questions about long pages of those of dev, to tune a decision on.

    python -m experiments.long_pages --data ../shared/data --output long.jsonl.gz

A third of the questions is taken. Each page gets 30 to 134 blocks of other pages
(``experiments.distractors``); the command prints how many it then has. Half of the questions have
no answer on their page. A few blocks are those that BM25 ranks highest among all pages: more of
them would make the page harder than a real one, and some would answer the question. ``nq tune``
takes such a file beside dev: the ids are others, in the same half and fold as those of the short
pages.
"""

import argparse
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from experiments import command
from experiments.distractors import lengthened, without_gold
from experiments.recipes import ALL_WIKI, SEED
from experiments.training_data import Record, data_files, read_records, write_records

FEWEST, MOST, RANKED = 30, 134, 6
ANSWERED = 0.5
EVERY = 3
"""Every third question is taken: a long page has eight times the windows of a short one."""
ID_SHIFT = 4 * 10**18
"""Added to the ids, so that they differ from those of the short pages; even, and 0 in all folds."""


def _options(parser: argparse.ArgumentParser) -> None:
    command.add_option(parser, "data", Path, "folder with train/ and dev/")
    command.add_option(parser, "output", Path, "a jsonl.gz", metavar="FILE")


def long_pages(dev: Sequence[Record], training: Sequence[Record]) -> Iterator[Record]:
    """Yields every third record of dev, with a long page; both are in simplified NQ format."""
    answered = [
        r for r in dev if any(a["long_answer"]["start_token"] >= 0 for a in r["annotations"])
    ]
    count = min(len(answered), round(ANSWERED * len(dev)))
    kept = {r["example_id"] for r in random.Random(SEED).sample(answered, count)}
    others = [r for r in training if r["source"] in ALL_WIKI]
    for record in lengthened(dev[::EVERY], [*dev, *others], FEWEST, MOST, SEED, RANKED):
        page = record if record["example_id"] in kept else without_gold(record)
        yield {**page, "example_id": record["example_id"] + ID_SHIFT}


def make(args: argparse.Namespace) -> int:
    """Runs the command."""
    dev, training = (list(read_records(data_files(args.data, part))) for part in ("dev", "train"))
    records = list(long_pages(dev, training))
    write_records(args.output, records)
    blocks = [sum(c["top_level"] for c in r["long_answer_candidates"]) for r in records]
    figures = {
        "questions": len(records),
        "fewest_blocks": min(blocks),
        "most_blocks": max(blocks),
    }
    return command.show(figures, args)


main = command.main(make, _options)
