"""Makes a dual encoder (``nq.model.dual_encoder``) of a sentence encoder."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nq.config import WindowConfig
from nq.json_files import read_json_object
from nq.model.names import WORD_EMBEDDINGS
from nq.preprocess.tokenizers.base import BLOCK_MARKERS, CONTEXT_MARKERS

if TYPE_CHECKING:
    from nq.model.joint import LoadedModel

LENGTH, STRIDE = 512, 448
"""Long windows with little overlap: few blocks are cut, and no piece needs the words around it."""
POOLING = "1_Pooling/config.json"


def to_dual_encoder(loaded: LoadedModel) -> LoadedModel:
    """Returns the dual encoder that a sentence encoder makes, to be written by ``nq convert``.

    The markers around each block get the embeddings of [CLS] and [SEP], and all segments that of
    the first one, so that each text of a window is encoded as it would be by itself.

    Raises:
        ValueError: the encoder's outputs are not averaged, weights of it are missing, it is a dual
            encoder already, or its vocabulary has other markers.
    """
    import numpy as np

    from nq.model import checkpoint, joint
    from nq.preprocess.tokenizers.load import load_tokenizer

    folder, config = loaded.folder, loaded.config
    if config.is_dual_encoder:
        raise ValueError(f"{folder} is a dual encoder already")
    check_pooling(folder / POOLING)
    tokenizer = load_tokenizer(folder)
    config = checkpoint.with_room_for(config, tokenizer)
    begins = [tokenizer.marker_id(marker) for marker in BLOCK_MARKERS]
    contexts = [tokenizer.marker_id(marker) for marker in CONTEXT_MARKERS]
    if [*begins, *contexts] != [*range(begins[0], contexts[-1] + 1)]:
        raise ValueError(f"{folder}: the markers of blocks have no ids of their own in a row")
    ids: dict[str, Any] = {**checkpoint.dual_encoder_ids(tokenizer)}
    loaded = joint.load(folder, config=dataclasses.replace(config, **ids))
    lost = [name for name in loaded.report.missing if not name.startswith(WORD_EMBEDDINGS)]
    if lost:
        raise ValueError(f"{folder} is no whole encoder, it lacks {', '.join(lost[:3])}")
    embeddings = loaded.model.get_layer("embeddings")
    word = embeddings.word.numpy()
    word[[tokenizer.marker_id("[Q]"), *begins]] = word[tokenizer.cls_id]
    word[contexts] = word[tokenizer.sep_id]
    embeddings.word.assign(word)
    if config.type_vocab_size:
        first = embeddings.segment.numpy()[:1]
        embeddings.segment.assign(np.repeat(first, config.type_vocab_size, axis=0))
    windows = WindowConfig(max_seq_length=LENGTH, doc_stride=STRIDE)
    return dataclasses.replace(loaded, windows=windows)


def check_pooling(path: Path) -> None:
    """Checks that the outputs of a sentence encoder are averaged, if its folder tells.

    Raises:
        ValueError: another output stands for the text.
    """
    if path.is_file():
        modes = read_json_object(path)
        used = sorted(name for name, value in modes.items() if "_mode_" in name and value is True)
        if used != ["pooling_mode_mean_tokens"]:
            raise ValueError(f"{path} names {', '.join(used) or 'no mode'}: expected the mean")
