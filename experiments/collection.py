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
from nq.inference.batches import Shape, by_length
from nq.model.checkpoint import with_room_for
from nq.model.folder import ModelFolder
from nq.model.runtime import import_tensorflow
from nq.postprocess.blocks import Blocks, bm25, lower_words
from nq.preprocess.features import prefix
from nq.progress import ProgressBar
from nq.questions import read_examples
from nq.records import MODEL_INPUTS, Example, FloatArray

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
    import_tensorflow()
    import keras

    from nq.model import joint

    folder = ModelFolder.open(model)
    config, windows = folder.config, folder.settings.windows
    if not config.is_dual_encoder:
        raise Error(
            f"{folder.path} is no dual encoder: give one, as nq convert --dual-encoder makes it"
        )
    tokenizer = folder.tokenizer(windows.compat)
    loaded = joint.load_model(folder, config=with_room_for(config, tokenizer)).model
    _, outputs, numbers = loaded.get_layer("similarity").input
    encoder = keras.Model(loaded.inputs, [outputs, numbers])

    def encoded(texts: Sequence[str], text_prefix: str, bar: ProgressBar) -> FloatArray:
        """Returns ``[N, hidden]``: each text by itself, in the place of a question."""
        head = [tokenizer.marker_id("[Q]"), *prefix(text_prefix, tokenizer)]
        room = windows.max_seq_length - len(head) - 2
        ids = [
            [tokenizer.cls_id, *head, *tokenizer.encode_text(text).ids[:room], tokenizer.sep_id]
            for text in texts
        ]
        means = np.zeros((len(ids), config.hidden_size))
        shape = Shape(BATCH_SIZE, windows.max_seq_length)
        for batch in by_length(np.array(list(map(len, ids))), shape):
            size = len(batch.rows), batch.shape.length
            rows = {name: np.zeros(size, np.int32) for name in MODEL_INPUTS}
            for i, row in enumerate(batch.rows.tolist()):
                rows["input_ids"][i, : len(ids[row])] = ids[row]
                rows["input_mask"][i, : len(ids[row])] = 1
            values, text = encoder.predict_on_batch(rows)
            pooled = (text == 0)[..., None]
            pooled[:, 2:] &= not config.pools_first_piece
            means[batch.rows] = (values.reshape(*text.shape, -1) * pooled).sum(axis=1)
            bar(len(batch.rows), len(ids))
        unit: FloatArray = means / np.linalg.norm(means, axis=1, keepdims=True)
        return unit

    started = time.perf_counter()
    with ProgressBar("encoding blocks", "blocks") as bar:
        of_blocks = encoded(blocks, windows.block_prefix, bar)
    log.info("%d blocks encoded in %.0f s", len(blocks), time.perf_counter() - started)
    with ProgressBar("encoding questions", "questions") as bar:
        return encoded(questions, windows.question_prefix, bar) @ of_blocks.T


def _gold(example: Example) -> set[tuple[str, ...]]:
    return {tuple(lower_words(example, a.long)) for a in example.annotations or () if a.long}


main = command.main(measure, _options)

if __name__ == "__main__":
    raise SystemExit(main())
