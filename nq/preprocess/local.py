"""The plain loop: makes windows in this process, without Beam."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from nq.config import WindowConfig
from nq.errors import Error
from nq.formats import inputs
from nq.formats.tfrecord import encode_records
from nq.formats.tfrecord_file import write_records
from nq.preprocess.contexts import unread_blocks
from nq.preprocess.features import features, training_features
from nq.preprocess.request import Request
from nq.preprocess.store import DEAD_LETTERS, encode_dead_letter, shard_prefix
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import DeadLetter, Example, Source

COUNTERS = ("examples", "windows", "dead_letters", "unread_blocks", "truncated_pages")
"""The counts of ``nq.preprocess.store.Prepared``, and the names of Beam's counters."""


def serialized_windows(
    source: Source,
    example: Example,
    tokenizer: Tokenizer,
    windows: WindowConfig,
    training: tuple[float, int] | None,
) -> list[bytes]:
    """Returns the windows of one example as serialized ``tf.train.Example`` messages.

    Args:
        source: where the example was read.
        example: the question and its page.
        tokenizer: the loaded tokenizer.
        windows: how the page becomes windows.
        training: ``(negatives, seed)`` for training features, ``None`` for inference.

    Raises:
        Error: the example cannot be converted; names its file and line.
    """
    try:
        if training:
            rows = training_features(example, tokenizer, windows, *training)
        else:
            rows = features(example, tokenizer, windows)
        return list(encode_records(rows, source, windows.switches.id_name))
    except Exception as error:
        where = f"{source.path}, line {source.line} (example {example.example_id})"
        raise Error(f"{where}: {type(error).__name__}: {error}") from error


def write_windows(request: Request, part: Path) -> dict[str, int]:
    """Writes one shard and the dead letters of a request into the folder ``part``.

    The files are byte-equal to those that Beam writes with one worker.

    Returns:
        The counts of ``nq.preprocess.store.Prepared``.
    """
    from tqdm import tqdm

    tokenizer = load_tokenizer(request.tokenizer, request.windows.compat)
    counts = dict.fromkeys(COUNTERS, 0)
    files = enumerate(request.files, start=request.first_file)
    items = islice(
        chain.from_iterable(inputs.read_records(path, i) for i, path in files), request.limit
    )

    def records() -> Iterator[bytes]:
        for source, item in items:
            if isinstance(item, DeadLetter):
                dead_letters.write(f"{encode_dead_letter(item)}\n")
                counts["dead_letters"] += 1
                continue
            windows = serialized_windows(source, item, tokenizer, request.windows, request.training)
            unread = unread_blocks(item, request.windows)
            counts["examples"] += 1
            counts["windows"] += len(windows)
            counts["unread_blocks"] += unread
            counts["truncated_pages"] += unread > 0
            bar.update()
            yield from windows

    with (
        (part / DEAD_LETTERS).open("w", encoding="utf-8") as dead_letters,
        tqdm(desc="preprocess", unit=" examples", disable=None) as bar,
    ):
        shard = f"{shard_prefix(request.first_file)}-00000-of-00001.tfrecord"
        write_records(part / shard, records())
    return counts
