"""The plain loop: makes windows in this process, without Beam."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple, TypeVar

from nq.config import WindowConfig
from nq.errors import Error
from nq.formats import inputs
from nq.formats.fields import RecordError
from nq.formats.tfrecord import encode_records, frame
from nq.preprocess.contexts import unread_blocks
from nq.preprocess.features import features, training_features
from nq.preprocess.identity import example_digest, write_digests
from nq.preprocess.request import Request, Training
from nq.preprocess.shards import ShardWriter
from nq.preprocess.store import DEAD_LETTERS, EXAMPLES, encode_dead_letter
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import DeadLetter, Example, ExampleKey, Features, Source

COUNTERS = ("examples", "windows", "dead_letters", "unread_blocks", "truncated_pages")
"""The counts of ``nq.preprocess.store.Prepared``, and the names of Beam's counters."""

T = TypeVar("T")


class Made(NamedTuple):
    """What becomes of one example.

    Args:
        source: where it was read.
        example: question and page.
        features: its windows.
        unread_blocks: blocks with text beyond ``max_contexts``.
    """

    source: Source
    example: Example
    features: Features
    unread_blocks: int

    @property
    def n_windows(self) -> int:
        """How many windows there are."""
        return len(self.features)


class Serialized(NamedTuple):
    """What is stored of one example.

    Args:
        windows: serialized ``tf.train.Example`` messages.
        digest: see ``nq.preprocess.identity``.
        unread_blocks: blocks with text beyond ``max_contexts``.
    """

    windows: list[bytes]
    digest: int
    unread_blocks: int

    @property
    def n_windows(self) -> int:
        """How many windows there are."""
        return len(self.windows)


def unchanged(made: Made, windows: WindowConfig) -> Made:
    """Returns the windows of an example as they are."""
    return made


def serialized(made: Made, windows: WindowConfig) -> Serialized:
    """Returns what is stored of an example whose windows are made."""
    records = encode_records(made.features, made.source, windows.switches.id_name)
    return Serialized(list(records), example_digest(made.example), made.unread_blocks)


def make_windows(
    source: Source,
    item: Example | DeadLetter,
    tokenizer: Tokenizer,
    windows: WindowConfig,
    training: Training | None,
    form: Callable[[Made, WindowConfig], T],
) -> T | DeadLetter:
    """Makes the windows of one record; returns them in the form that is required.

    Args:
        source: where the record was read.
        item: the question and its page; a dead letter is returned as it is.
        tokenizer: the loaded tokenizer.
        windows: how the page becomes windows.
        training: settings of training features, ``None`` for inference.
        form: returns the windows in another form.

    Returns:
        What ``form`` returned; a dead letter for too many windows.

    Raises:
        Error: the example cannot be converted; names its file and line.
    """
    if isinstance(item, DeadLetter):
        return item
    try:
        if training:
            rows = training_features(item, tokenizer, windows, *training)
        else:
            rows = features(item, tokenizer, windows)
        return form(Made(source, item, rows, unread_blocks(item, windows)), windows)
    except RecordError as error:
        return DeadLetter(source, str(error), item.question[: inputs.EXCERPT_CHARS])
    except Exception as error:
        where = f"{source.path}, line {source.line} (example {item.example_id})"
        raise Error(f"{where}: {type(error).__name__}: {error}") from error


def write_windows(request: Request, part: Path) -> dict[str, int]:
    """Writes shard, digests and dead letters of a request into the folder ``part``.

    The files are byte-equal to those that Beam writes.

    Returns:
        The counts of ``nq.preprocess.store.Prepared``.
    """
    from tqdm import tqdm

    tokenizer = load_tokenizer(request.tokenizer, request.windows.compat)
    settings = request.windows, request.training
    counts, digests = dict.fromkeys(COUNTERS, 0), list[tuple[ExampleKey, int]]()
    files = enumerate(request.files, start=request.first_file)
    items = islice(
        chain.from_iterable(inputs.read_records(path, i, pages=request.pages) for i, path in files),
        request.limit,
    )

    with (
        (part / DEAD_LETTERS).open("w", encoding="utf-8") as dead_letters,
        ShardWriter(part, request.first_file) as writer,
        tqdm(desc="preprocess", unit=" examples", disable=None) as bar,
    ):
        for source, item in items:
            made = make_windows(source, item, tokenizer, *settings, serialized)
            if isinstance(made, DeadLetter):
                dead_letters.write(f"{encode_dead_letter(made)}\n")
                counts["dead_letters"] += 1
                continue
            writer.write(b"".join(map(frame, made.windows)))
            digests.append(((source.file_index, source.line), made.digest))
            counts["examples"] += 1
            counts["windows"] += len(made.windows)
            counts["unread_blocks"] += made.unread_blocks
            counts["truncated_pages"] += made.unread_blocks > 0
            bar.update()
    write_digests(part / EXAMPLES, digests)
    return counts
