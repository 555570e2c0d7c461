"""Measures what it saves that the vectors of a page are made once and kept.

    python -m experiments.vectors --data ../shared/data/pages/nq-pages.jsonl.gz \\
        ../shared/data/dev/nq-dev.jsonl.gz

With a loaded model it asks questions about the page of the first file whose number of blocks is
nearest to ``BLOCKS``, and all questions of that file at once, with and without kept vectors. The
different pages of the second file become files of a folder, which ``nq ask`` is asked about in
processes with a cache of their own, first with ``--index``. Times are in seconds.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from experiments import command
from experiments.command import markdown
from nq.commands import arguments
from nq.errors import Error
from nq.inference.load import vector_scorer
from nq.inference.profile import reader_profile
from nq.inference.vectors import VectorStore
from nq.model.model import Model
from nq.postprocess.blocks import Blocks
from nq.questions import read_examples
from nq.reader import BATCH_SIZE, Reader, checked_scorer
from nq.records import Example

BLOCKS = 134
LATER = 5
QUESTION = "who designed the tower"
ROWS = {
    "page_blocks": "blocks of the page",
    "page_first_s": "the first question about it, loaded",
    "page_later_s": "each later one",
    "page_ranker_s": "of which the ranker and the decision take",
    "questions": "questions at once",
    "questions_pages": "about so many pages",
    "questions_without_s": "without kept vectors",
    "questions_with_s": "with them",
    "folder_documents": "documents of a folder",
    "folder_blocks": "blocks in them",
    "folder_first_s": "the first `nq ask` with `--index`",
    "folder_later_s": "each later one",
    "folder_disk_mb": "MB of the cache on the disk",
    "folder_memory_mb": "MB of memory, the largest of these processes",
}


def _options(parser: argparse.ArgumentParser) -> None:
    arguments.add_data(parser)
    arguments.add_model(parser)


def measure(args: argparse.Namespace) -> int:
    """Runs the command."""
    if len(args.data) != 2:
        raise Error("give two files: of whole pages, and of pages that become a folder")
    pages, documents = (list(read_examples([path])) for path in args.data)
    model = Model.open(args.model)
    with Reader(checked_scorer(model, reader_profile(), BATCH_SIZE)) as reader:
        result = one_page(reader, pages) | all_pages(reader, pages)
    result |= folder(documents, model)
    return command.show(result, args, table)


def one_page(reader: Reader, examples: Sequence[Example]) -> dict[str, float]:
    """Returns the seconds of the first and of later questions about one page."""
    n_blocks = {example.example_id: len(Blocks.of(example).candidates) for example in examples}
    page = min(examples, key=lambda example: abs(n_blocks[example.example_id] - BLOCKS))
    other = next(example for example in examples if example.tokens != page.tokens)
    _predict_each(reader, [other])  # every network has been run then
    asked = [replace(page, question=example.question) for example in examples][: LATER + 1]
    first, *later = [_seconds(partial(_predict_each, reader, [one])) for one in asked]
    counters = reader._scorer.counters
    before = counters.reader_s
    seconds = _seconds(partial(_predict_each, reader, asked))
    without_reader = (seconds - (counters.reader_s - before)) / len(asked)
    return {
        "page_blocks": n_blocks[page.example_id],
        "page_first_s": first,
        "page_later_s": statistics.median(later),
        "page_ranker_s": without_reader,
    }


def all_pages(reader: Reader, examples: Sequence[Example]) -> dict[str, float]:
    """Returns the seconds of all questions with and without vectors that are kept between them."""
    scorer = vector_scorer(reader._scorer.open())
    if scorer is None:
        raise Error("the model has no dual encoder")
    scorer.store = VectorStore(limit_bytes=0)
    without = _seconds(partial(_predict_each, reader, examples))
    scorer.store = VectorStore()
    with_them = _seconds(partial(_predict_each, reader, examples))
    return {
        "questions": len(examples),
        "questions_pages": len({tuple(example.tokens) for example in examples}),
        "questions_without_s": without,
        "questions_with_s": with_them,
    }


def folder(examples: Sequence[Example], model: Model) -> dict[str, float]:
    """Returns the figures of ``nq ask`` about a folder of documents."""
    texts = {text_of(example): example for example in examples}
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "documents").mkdir()
        for number, text in enumerate(texts):
            (root / "documents" / f"{number}.txt").write_text(text, encoding="utf-8")
        cache = root / "cache"
        asked = [sys.executable, "-m", "nq", "ask", QUESTION, str(root / "documents"), "--json"]
        asked += ["--model", str(model.folder)]
        environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}

        def ask(*options: str) -> float:
            run = [*asked, *options]
            return _seconds(
                lambda: subprocess.run(run, env=environment, check=True, capture_output=True)
            )

        first = ask("--index")
        later = [ask() for _ in range(3)]
        kept = (path for path in (cache / "nq" / "vectors").iterdir() if path.is_file())
        disk = sum(path.stat().st_size for path in kept)
    return {
        "folder_documents": len(texts),
        "folder_blocks": sum(len(Blocks.of(one).candidates) for one in texts.values()),
        "folder_first_s": first,
        "folder_later_s": statistics.median(later),
        "folder_disk_mb": disk / 2**20,
        "folder_memory_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**10,
    }


def text_of(example: Example) -> str:
    """Returns the blocks of an example as plain text, with blank lines between them."""
    spans = [example.candidates[i].span for i in Blocks.of(example).candidates.tolist()]
    blocks = (
        " ".join(example.tokens[i] for i in range(s.start, s.end) if not example.is_html[i])
        for s in spans
    )
    return "\n\n".join(blocks) + "\n"


def _predict_each(reader: Reader, examples: Sequence[Example]) -> None:
    """Answers examples one after the other."""
    for example in examples:
        list(reader.predict([example]))


def _seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def table(result: Mapping[str, float]) -> str:
    """Returns the table of a result."""
    rows = (
        (text, f"{result[name]:.2f} s" if name.endswith("_s") else f"{result[name]:,.0f}")
        for name, text in ROWS.items()
    )
    return markdown(("pages encoded once", ""), *rows)


main = command.main(measure, _options)
