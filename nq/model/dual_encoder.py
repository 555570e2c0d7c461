"""A dual encoder: question and blocks are encoded apart, and compared by the cosine of their means.

A joint encoder sees question and page together; a sentence encoder (Reimers and Gurevych 2019,
https://arxiv.org/abs/1908.10084) encodes each text by itself, as ``[CLS] text [SEP]``, and the mean
of the outputs stands for the text. Such a model ranks blocks without any training on questions of
this kind. Here it reads the windows of all other models, in which question and blocks follow each
other:

    [CLS] [Q] question [SEP] [ContextId=0] [Paragraph=1] The flow … [ContextId=1] [Paragraph=2] He …

Pieces attend to pieces of their own text only, positions are counted from the beginning of each
text, and the markers around a block have the embeddings of [SEP] and [CLS], as [Q] before the
question has that of [CLS]. So all texts of a window are encoded in one pass, as each would be by
itself. A window that begins within a block compares the rest of it; the decision takes the best
window of each block.

Some sentence encoders were trained with a prefix of each question and another one of each block:
these follow [Q] and the marker of the block. Of some, the output of [CLS] stands for the text.
"""

from typing import Any

import keras
import numpy as np
from keras import ops

from nq.model.attention import same_text
from nq.model.config import ModelConfig
from nq.records import AnswerType

ABSENT = -10000.0
"""Logit of the positions that stand for no block."""
SCALE, MIDDLE = 50.0, 0.8
"""A block of the cosine ``MIDDLE`` has the logit 0, as [CLS] has. ``nq tune`` fits the weight, and
prefers one near 1; e5's cosines are between 0.7 and 0.9."""
SMALLEST_NORM = 1e-6


class MarkerLayer(keras.layers.Layer):
    """Computes values ``[B, L]`` from ids, int ``[B, L]``, by the ids of markers."""

    def __init__(self, config: ModelConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config

    def compute_output_shape(self, shape: Any, *shapes: Any) -> Any:
        return shape


class KnownMarkers(MarkerLayer):
    """Replaces [UNK] in the place of a marker by a marker.

    The vocabulary has no marker for blocks that are no paragraph, table or list, nor for contexts
    beyond the 50th. A block begins with the markers of its context and of its type, so [UNK] behind
    the first or before the second is the other one. Two [UNK] that a window begins with are taken
    for both. Takes and returns ids, int ``[B, L]``.
    """

    def call(self, ids: Any) -> Any:
        config = self.config
        unknown, known = ids == config.unknown_id, is_block_marker(ids, config)
        context = (ids > config.last_marker_id) & (ids <= config.last_context_id)
        begins_window = _moved(_moved(ids == config.separator_id)) & _moved(unknown)
        begins = unknown & (_moved(context) | begins_window)
        before = unknown & _moved(known | begins, -1)
        ids = ops.where(begins, config.first_marker_id, ids)
        return ops.where(before, config.last_context_id, ids)


class TextNumbers(MarkerLayer):
    """Numbers the texts of a window: 0 for the question, larger ones for blocks.

    [CLS] has the number -2, padding -1. A text ends with a separator, or before a marker that
    begins a block. The mask is 1 for pieces and 0 for padding.
    """

    def call(self, ids: Any, mask: Any = None) -> Any:
        ends = ops.cast(ids == self.config.separator_id, "int32")
        begins = ops.cast(is_block_marker(ids, self.config), "int32")
        numbers = ops.cumsum(begins + ends, axis=1) - ends
        if mask is not None:
            numbers = ops.where(ops.cast(mask, "bool"), numbers, -1)
        return ops.where(ops.arange(ops.shape(ids)[1])[None] == 0, -2, numbers)


class Similarity(MarkerLayer):
    """Computes the logit of each block: ``SCALE`` times the cosine less ``MIDDLE``.

    It is float32 ``[B, L]``, from outputs ``x`` of the encoder ``[B * L, hidden]``: 0 at [CLS], the
    logit of a block at its first word, else ``ABSENT``.
    """

    def call(self, ids: Any, x: Any, numbers: Any) -> Any:
        length = ops.shape(ids)[1]
        x = ops.reshape(ops.cast(x, "float32"), (-1, length, x.shape[-1]))
        pooled = same_text(numbers)
        if self.config.pools_first_piece:
            pooled = pooled & _begins(numbers)[:, None]
        texts = ops.matmul(ops.cast(pooled, "float32"), x)
        norm = ops.sqrt(ops.sum(ops.square(texts), axis=-1, keepdims=True))
        texts = texts / ops.maximum(norm, SMALLEST_NORM)
        logits = SCALE * (ops.sum(texts * texts[:, 1:2], axis=-1) - MIDDLE)
        logits = ops.where(self._first_words(ids, numbers), logits, ABSENT)
        return ops.where(ops.arange(length)[None] == 0, 0.0, logits)

    def _first_words(self, ids: Any, numbers: Any) -> Any:
        """Returns bool ``[B, L]``: the first pieces of blocks that are no marker or separator.

        The prefix of a block is none of its pieces. Behind a marker without words there is one too,
        which belongs to no word of the document.
        """
        first = marker = is_block_marker(ids, self.config)
        for _ in range(1 + self.config.prefix_pieces):
            first = _moved(first)
        word = ~marker & (ids != self.config.separator_id) & (numbers > 0)
        return word & (_begins(numbers) | first)


class LongOnly(keras.layers.Layer):
    """Returns logits of types, ``[B, 5]``: 0 for a long answer and for none, else ``ABSENT``."""

    def call(self, ids: Any) -> Any:
        possible = (AnswerType.UNKNOWN, AnswerType.LONG)
        logits = np.array([0.0 if t in possible else ABSENT for t in AnswerType], np.float32)
        return ops.broadcast_to(logits, (ops.shape(ids)[0], len(logits)))

    def compute_output_shape(self, ids_shape: Any) -> Any:
        return ids_shape[0], len(AnswerType)


def is_block_marker(ids: Any, config: ModelConfig) -> Any:
    """Returns bool ``[B, L]``: which pieces are markers that begin a block."""
    return (ids >= config.first_marker_id) & (ids <= config.last_marker_id)


def _begins(numbers: Any) -> Any:
    """Returns bool ``[B, L]``: which pieces begin a text, by their numbers ``[B, L]``."""
    return ops.concatenate([numbers[:, :1] < 0, numbers[:, 1:] > numbers[:, :-1]], axis=1)


def _moved(flags: Any, places: int = 1) -> Any:
    """Returns bool ``[B, L]``: flags moved by 1 or -1 places; what becomes free is false."""
    none = flags[:, :1] & False
    parts = [none, flags[:, :-1]] if places == 1 else [flags[:, 1:], none]
    return ops.concatenate(parts, axis=1)
