"""Makes the folders beside this file: tiny random models of each family, saved by ``transformers``,
with the logits that ``transformers`` computes. A new folder needs its ``config.json`` alone.

It needs transformers and PyTorch: ``python -m tests.golden.families.make``.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
FAMILIES = sorted(path.parent.name for path in HERE.glob("*/config.json"))
WITHOUT_SEGMENTS = ("roberta", "xlm-roberta", "camembert", "distilbert", "mpnet", "modernbert")
LENGTH, N_PIECES, FIRST_OF_PAGE = 12, (12, 7), 4
VOCAB_SIZE = 40


def random_model(folder: Path, config: Any, seed: int = 0, deviation: float = 0.4) -> Any:
    """Writes a model folder; returns its model of ``transformers``, which has this config."""
    import torch
    from transformers import AutoModelForQuestionAnswering

    model = AutoModelForQuestionAnswering.from_config(config)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in model.parameters():
            noise = deviation * torch.randn(value.shape, generator=draw)
            value.copy_(noise + (value == 1).float())
    model.eval()
    model.save_pretrained(folder)
    return model


def windows(
    seed: int, length: int = LENGTH, n_pieces: Sequence[int] = N_PIECES
) -> dict[str, np.ndarray[Any, Any]]:
    """Returns random inputs of a BERT-Joint model."""
    pos, n = np.arange(length)[None], np.asarray(n_pieces)[:, None]
    ids = np.random.default_rng(seed).integers(3, VOCAB_SIZE, (len(n), length))
    mask = pos < n
    return {
        "input_ids": np.where(mask, ids, 1).astype(np.int32),
        "input_mask": mask.astype(np.int32),
        "segment_ids": (mask & (pos >= FIRST_OF_PAGE)).astype(np.int32),
    }


def logits(model: Any, inputs: dict[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the start and end logits that ``transformers`` computes."""
    import torch

    names = {"input_ids": "input_ids", "attention_mask": "input_mask"}
    if model.config.model_type not in WITHOUT_SEGMENTS:
        names["token_type_ids"] = "segment_ids"
    given = {theirs: torch.from_numpy(inputs[name]).long() for theirs, name in names.items()}
    with torch.no_grad():
        outputs = model(**given)
    return {name: outputs[name].float().numpy() for name in ("start_logits", "end_logits")}


def main() -> None:
    """Makes all folders."""
    from transformers import AutoConfig

    for name in FAMILIES:
        model = random_model(HERE / name, AutoConfig.from_pretrained(HERE / name))
        inputs = windows(0)
        reference: dict[str, Any] = {**inputs, **logits(model, inputs)}
        np.savez_compressed(HERE / name / "reference.npz", **reference)


if __name__ == "__main__":
    main()
