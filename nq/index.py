"""The blocks of several documents, ranked for a question: by their words, and by their vectors.

What ranking needs of a document is kept in the user's cache, by the content of its file: the words
and the pieces of its blocks (``Document``). Vectors are kept by the pieces of a text. So a question
about a known folder reads no document but the best ones, and encodes nothing but the question.

Where new documents take more than ``PATIENCE_S`` to be encoded, their words rank alone, unless an
index was asked for.
"""

import hashlib
import logging
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import Self

import numpy as np
import orjson

from nq import __version__, storage
from nq.answers import Page
from nq.inference.engine import code_digests
from nq.inference.scorer import no_progress
from nq.inference.vectors import Texts, VectorScorer, text_key
from nq.model.model import ModelPart
from nq.postprocess.blocks import Blocks, lower_words
from nq.preprocess.features import features, query
from nq.records import Example, FloatArray, IntArray, Span

log = logging.getLogger(__name__)

PATIENCE_S = 60.0
TRIAL_S = 2.0
"""Seconds of encoding by which the rest is estimated."""
CHUNK = 128


@dataclass(frozen=True, eq=False)
class Document:
    """What ranking needs of a document.

    Args:
        size: tokens of its page.
        blocks: the spans of its blocks with text.
        words: the words of each block, as ``lower_words`` gives them, with blanks between them.
        texts: the pieces of each text of a dual encoder, int32 ``[n]``.
        block: ``[texts]`` the block of each text.
    """

    size: int
    blocks: Sequence[Span]
    words: Sequence[str]
    texts: Sequence[IntArray] = ()
    block: Sequence[int] = ()

    @classmethod
    def of(cls, example: Example, ranker: ModelPart | None) -> Self:
        """Returns what is needed of a page, without texts if there is no dual encoder."""
        found = Blocks.of(example)
        spans = [example.candidates[i].span for i in found.candidates]
        words = [" ".join(lower_words(example, span)) for span in spans]
        if ranker is None:
            return cls(len(example.tokens), spans, words)
        rows = features(replace(example, question=""), ranker.tokenizer, ranker.windows).rows
        texts = Texts.of(rows, ranker.tokenizer.cls_id)
        position, has_words = texts.first_words(rows["token_map"])
        tokens = rows["token_map"].ravel()[position[has_words]]
        block = np.searchsorted(found.candidates, found.of_token[tokens]).tolist()
        pieces = list(compress(texts.pieces, has_words))
        return cls(len(example.tokens), spans, words, pieces, block)

    def encoded(self) -> bytes:
        """Returns the document as compressed JSON."""
        spans = [[span.start, span.end] for span in self.blocks]
        values = {**vars(self), "blocks": spans}
        return zlib.compress(orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY), 1)

    @classmethod
    def decoded(cls, value: bytes) -> Self:
        """Returns the document that ``encoded`` gave."""
        values = orjson.loads(zlib.decompress(value))
        blocks = [Span(start, end) for start, end in values["blocks"]]
        texts = [np.array(text, np.int32) for text in values["texts"]]
        return cls(**{**values, "blocks": blocks, "texts": texts})


class BlockIndex:
    """Documents and their vectors, as a dual encoder makes them.

    Args:
        scorer: the dual encoder; its vectors may be kept in a file, documents are then, too.
        ranker: its model.
        lock: is held while the scorer computes.
        is_wanted: whether all documents are encoded, however long it takes.
    """

    def __init__(
        self,
        scorer: VectorScorer,
        ranker: ModelPart,
        lock: AbstractContextManager[object],
        is_wanted: bool = False,
    ) -> None:
        self._scorer = scorer
        self.ranker = ranker
        self._lock = lock
        self._is_wanted = is_wanted
        self._has_told = False

    @cached_property
    def _made_by(self) -> bytes:
        """What documents depend on beside their files."""
        ranker = self.ranker
        code = code_digests("formats", "preprocess", "postprocess")
        made_by = [__version__, code, ranker.tokenizer.digest, ranker.windows.to_dict()]
        return storage.digest_json(made_by).encode()

    def document(self, source: object, read: Callable[[], Page]) -> Document:
        """Returns a document; the page of a file is only read if the file is not known."""
        file = self._scorer.store.file
        if file is None or not isinstance(source, Path):
            return Document.of(read().example, self.ranker)
        content = hashlib.blake2b(source.read_bytes(), digest_size=32).digest()
        name = source.suffix.lower().encode()
        key = hashlib.blake2b(self._made_by + name + content, digest_size=16).digest()
        if value := file.find([key]).get(key):
            return Document.decoded(value)
        document = Document.of(read().example, self.ranker)
        file.add({key: document.encoded()})
        return document

    def cosines(
        self,
        question: str,
        documents: Sequence[Document],
        progress: Callable[[int, int], None] = no_progress,
    ) -> FloatArray | None:
        """Returns the cosine of a question and each block, ``[blocks]``, of its best text.

        It is ``None`` where it takes too long to encode the blocks. ``progress`` is called with the
        texts that have just been encoded and the number of all that are new.
        """
        texts = [text for document in documents for text in document.texts]
        with self._lock:
            vectors = self._vectors(texts, progress)
            if vectors is None:
                return None
            tokenizer = self.ranker.tokenizer
            pieces = query(question, tokenizer, self.ranker.windows)
            (asked,) = self._scorer.encode([[tokenizer.cls_id, *pieces, tokenizer.sep_id]])
        n_blocks = [len(document.blocks) for document in documents]
        first = np.cumsum([0, *n_blocks])
        block = [start + b for start, one in zip(first, documents, strict=False) for b in one.block]
        result = np.full(first[-1], -1.0)
        np.maximum.at(result, np.array(block, np.int64), vectors @ asked)
        return result

    def _vectors(
        self, texts: Sequence[IntArray], progress: Callable[[int, int], None]
    ) -> FloatArray | None:
        """Returns the vectors of texts, float32 ``[N, units]``, unless they take too long."""
        keys = list(map(text_key, texts))
        of_key = dict(zip(keys, texts, strict=True))
        vectors = self._scorer.store.find(of_key)
        missing = [key for key in of_key if key not in vectors]
        started = time.perf_counter()
        for first in range(0, len(missing), CHUNK):
            seconds = time.perf_counter() - started
            needed = seconds * (len(missing) - first) / max(first, 1)
            if seconds > TRIAL_S and needed > PATIENCE_S and not self._is_wanted:
                self._mention(len(missing) - first, needed)
                return None
            some = missing[first : first + CHUNK]
            progress(0, len(missing))  # so that the work is named before its first part is done
            computed = self._scorer.encode([of_key[key] for key in some])
            vectors |= dict(zip(some, computed, strict=True))
            progress(len(some), len(missing))
        return np.array([vectors[key] for key in keys], np.float32)

    def _mention(self, texts: int, seconds: float) -> None:
        if not self._has_told:
            self._has_told = True
            log.info(
                "%d blocks have no vectors yet, which would take about %.0f s: they are ranked by "
                "their words; --index makes them, once",
                texts,
                seconds,
            )
