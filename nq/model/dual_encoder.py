"""A dual encoder: question and blocks are encoded apart, and compared by the cosine of their means.

A joint encoder sees question and page together; a sentence encoder (Reimers and Gurevych 2019,
https://arxiv.org/abs/1908.10084) encodes each text by itself, as ``[CLS] text [SEP]``, and the mean
of the outputs, or the output of [CLS], stands for the text. Such a model ranks blocks without any
training on questions of this kind, and the vector of a block serves all questions.

The network takes one text in a row, and gives its vector. A window of a page holds several texts,
the question first (``nq.preprocess.features``):

    [CLS] query: question [SEP] [CLS] passage: The flow … [SEP] [CLS] passage: He … [SEP] 0 0
"""

from typing import Any

import keras
from keras import ops

from nq.model.config import CLS, ModelConfig

SMALLEST_NORM = 1e-6


class TextVector(keras.layers.Layer):
    """Pools the outputs of the encoder to a vector of length 1 for each text.

    It is float32 ``[B, hidden]``, from outputs ``x`` ``[B * L, hidden]``, ids int ``[B, L]`` for
    their length alone, and a mask int ``[B, L]`` unless no text has padding.
    """

    def __init__(self, config: ModelConfig, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.config = config

    def call(self, x: Any, ids: Any, mask: Any = None) -> Any:
        x = ops.reshape(ops.cast(x, "float32"), (-1, ops.shape(ids)[1], x.shape[-1]))
        if self.config.pooling == CLS:
            pooled = x[:, 0]
        elif mask is None:
            pooled = ops.sum(x, axis=1)
        else:
            pooled = ops.sum(x * ops.cast(mask, "float32")[..., None], axis=1)
        norm = ops.sqrt(ops.sum(ops.square(pooled), axis=-1, keepdims=True))
        return pooled / ops.maximum(norm, SMALLEST_NORM)

    def compute_output_shape(self, x_shape: Any, ids_shape: Any, mask_shape: Any = None) -> Any:
        return ids_shape[0], x_shape[-1]
