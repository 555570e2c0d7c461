"""The ids of pieces that a model has to know: those of separators and markers, by the tokenizer."""

from __future__ import annotations

from nq.preprocess.tokenizers.base import BLOCK_MARKERS, CONTEXT_MARKERS, Tokenizer


def dual_encoder_ids(tokenizer: Tokenizer) -> dict[str, int]:
    """Returns the ids that the shape of a dual encoder has, by their names in ``ModelConfig``."""
    return {
        "separator_id": tokenizer.sep_id,
        "unknown_id": tokenizer.unk_id,
        "first_marker_id": tokenizer.marker_id(BLOCK_MARKERS[0]),
        "last_marker_id": tokenizer.marker_id(BLOCK_MARKERS[-1]),
        "last_context_id": tokenizer.marker_id(CONTEXT_MARKERS[-1]),
    }
