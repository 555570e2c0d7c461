"""Makes the windows of one example, and in a plain loop without Beam the windows of files."""

from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from nq.config import WindowConfig
from nq.errors import Error
from nq.formats import inputs
from nq.formats.example_records import encode_example
from nq.formats.fields import RecordError
from nq.formats.tfrecord import encode_records, frame
from nq.preprocess.contexts import unread_blocks
from nq.preprocess.features import features, training_features
from nq.preprocess.request import Request, Training
from nq.preprocess.store import StoredExample, write_examples
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.progress import new_bar
from nq.records import DeadLetter, Example, Features, Source


def make_windows(
    source: Source,
    item: Example | DeadLetter,
    tokenizer: Tokenizer,
    windows: WindowConfig,
    training: Training | None = None,
) -> Features | DeadLetter:
    """Makes the windows of one record; an example with too many becomes a dead letter.

    An ``Error`` names file and line of an example that cannot be converted.
    """
    if isinstance(item, DeadLetter):
        return item
    try:
        if training:
            return training_features(item, tokenizer, windows, *training)
        return features(item, tokenizer, windows)
    except RecordError as error:
        return DeadLetter(source, str(error), item.question[: inputs.EXCERPT_CHARS])
    except Exception as error:
        where = f"{source.path}, line {source.line} (example {item.example_id})"
        raise Error(f"{where}: {type(error).__name__}: {error}") from error


def stored_example(
    source: Source, example: Example, rows: Features, windows: WindowConfig
) -> StoredExample:
    """Encodes an example and its windows as records of the windows folder."""
    records = b"".join(map(frame, encode_records(rows, source, windows.switches.id_name)))
    stored, key = b"", (source.file_index, source.line)
    if rows.answer_types is None:
        stored = frame(encode_example(key, example, len(rows)))
    return StoredExample(source, stored, records, len(rows), unread_blocks(example, windows))


def write_windows(request: Request, part: Path) -> dict[str, int]:
    """Writes the windows of a request, byte for byte as with Beam; see ``write_examples``."""
    tokenizer = load_tokenizer(request.tokenizer, request.windows.compat)
    files = enumerate(request.files, start=request.first_file)
    items = islice(
        chain.from_iterable(inputs.read_records(path, i, pages=request.pages) for i, path in files),
        request.limit,
    )

    def elements() -> Iterator[StoredExample | DeadLetter]:
        with new_bar(desc="preprocess", unit=" examples") as bar:
            for source, item in items:
                rows = make_windows(source, item, tokenizer, request.windows, request.training)
                if isinstance(rows, DeadLetter):
                    yield rows
                elif isinstance(item, Example):
                    yield stored_example(source, item, rows, request.windows)
                    bar.update()

    return write_examples(elements(), part, request.first_file, training=bool(request.training))
