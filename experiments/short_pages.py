"""Cuts the pages of dev to 1 to 5 blocks.

    python -m experiments.short_pages --data ../shared/data --output short.jsonl.gz

Each question of dev with an answer is asked twice: about its gold block among random others of its
page, and about random blocks of its page without the gold one, so that half of the questions have
no answer. The ids are others than those of dev, in the same half and fold.
"""

import argparse
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from experiments import command
from experiments.distractors import gold_blocks, without_blocks
from experiments.recipes import SEED
from experiments.training_data import Record, data_files, read_records, write_records

MOST = 5
ID_SHIFTS = {True: 10**18, False: 2 * 10**18}
"""Added to the ids of pages with and without the gold block; even, and 0 in all folds."""


def _options(parser: argparse.ArgumentParser) -> None:
    text = "folder with dev/"
    command.add_option(parser, "data", Path, text)
    command.add_option(parser, "output", Path, "a jsonl.gz", metavar="FILE")


def short_pages(dev: Iterable[Record]) -> Iterator[Record]:
    """Yields two short pages of each record with an answer, in simplified NQ format."""
    for record in dev:
        blocks = record["long_answer_candidates"]
        tops = {i for i, b in enumerate(blocks) if b["top_level"]}
        gold = gold_blocks(record)
        others = sorted(tops - gold)
        if not gold or not others:
            continue
        draw = random.Random(f"{SEED}/{record['example_id']}")
        for has_gold, shift in ID_SHIFTS.items():
            kept = gold if has_gold else set()
            size = draw.randint(1, MOST)
            kept = kept | {*draw.sample(others, min(len(others), max(0, size - len(kept))))}
            page = without_blocks(record, tops - kept)
            yield {**page, "example_id": record["example_id"] + shift}


def make(args: argparse.Namespace) -> int:
    """Runs the command."""
    records = list(short_pages(read_records(data_files(args.data, "dev"))))
    write_records(args.output, records)
    blocks = [sum(c["top_level"] for c in r["long_answer_candidates"]) for r in records]
    result = {
        "questions": len(records),
        "fewest_blocks": min(blocks),
        "most_blocks": max(blocks),
    }
    return command.show(result, args)


main = command.main(make, _options)
