"""Compares a reader called as the question-answering pipeline with that of transformers 4.

    python -m venv /tmp/transformers4
    /tmp/transformers4/bin/pip install 'transformers<5' torch
    python -m experiments.peers.pipeline --python /tmp/transformers4/bin/python

Both answer the calls of the pipeline's documentation and of its tests, and some of every option, by
the same random model; nq has it from ``nq convert``. ``--output FILE`` writes the answers of
transformers, which ``tests/test_question_answering.py`` compares with those of nq. The environment
of transformers 4 runs this file as a script, without nq.
"""

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

TOLERANCE = 1e-5
SHAPE = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 512,
}
"""Of the random model."""

FOUNDED = "Where was HuggingFace founded ?"
PARIS = "HuggingFace was founded in Paris."
FIELD = "In what field is HuggingFace ?"
STARTUP = "HuggingFace is  an AI startup."
LIVE: dict[str, Any] = {
    "question": "Where do I live?",
    "context": "My name is Wolfgang and I live in Berlin",
}
LONG = (
    "London is the capital and largest city of England and the United Kingdom. It stands on the "
    "River Thames in south-east England at the head of a 50-mile (80 km) estuary.\n\n  The City of "
    "London, its café-lined core, was founded by the Romans as Londinium; GDP: €801.66 billion. "
)
TWICE = {"question": [FIELD, FOUNDED], "context": [STARTUP, PARIS]}
ABOUT_LONDON = {"question": "What stands on the Thames?", "context": LONG * 12}

CALLS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "documentation": ([], LIVE),
    "keywords": ([], {"question": FOUNDED, "context": PARIS}),
    "positions": ([FOUNDED, PARIS], {}),
    "dict": ([{"question": FOUNDED, "context": PARIS}], {}),
    "list of dicts": ([[LIVE, {"question": FIELD, "context": STARTUP}]], {}),
    "several questions": ([], {"question": [FOUNDED, FIELD], "context": PARIS}),
    "lists": ([], TWICE),
    "top_k": ([], {**LIVE, "top_k": 5}),
    "impossible": ([], {**LIVE, "handle_impossible_answer": True}),
    "impossible, top_k": ([], {**TWICE, "handle_impossible_answer": True, "top_k": 3}),
    "max_answer_len": ([], {**LIVE, "max_answer_len": 2, "top_k": 4}),
    "pieces": ([], {**ABOUT_LONDON, "align_to_words": False, "top_k": 4}),
    "long context": ([], {"question": FOUNDED, "context": PARIS * 20}),
    "several windows": ([], {**ABOUT_LONDON, "top_k": 4, "handle_impossible_answer": True}),
    "doc_stride": ([], {**ABOUT_LONDON, "doc_stride": 20, "top_k": 3}),
    "max_seq_len": ([], {**ABOUT_LONDON, "max_seq_len": 100, "doc_stride": 0, "top_k": 3}),
    "batch_size": ([], {**TWICE, "batch_size": 2}),
    "unknown characters": (
        [],
        {"question": "東京?", "context": "It is 東京 — naïve\u200b, \t😀 ok."},
    ),
}
"""The positional and the keyword arguments of each call."""
REFUSED: dict[str, dict[str, Any]] = {
    "empty question": {"question": "", "context": PARIS},
    "no question": {"question": None, "context": PARIS},
    "empty context": {"question": FOUNDED, "context": ""},
    "no context": {"question": FOUNDED, "context": None},
    "numbers differ": {"question": [FOUNDED, FIELD], "context": [PARIS]},
    "top_k": {**LIVE, "top_k": 0},
    "max_answer_len": {**LIVE, "max_answer_len": 0},
}
"""Calls that raise ``ValueError``."""


def vocabulary() -> list[str]:
    """Returns pieces that cut the texts of the calls, some words whole and others not."""
    text = json.dumps([list(CALLS.values()), list(REFUSED.values())], ensure_ascii=False).lower()
    characters = sorted({c for c in text if c.isprintable() and not c.isspace()} - set("😀"))
    words = sorted({word for word in text.split() if word.isalpha() and len(word) % 2 == 0})
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return [*special, *characters, *(f"##{c}" for c in characters), *words]


def tensors(vocab_size: int) -> dict[str, Any]:
    """Returns the weights of a random BERT model by the names of Hugging Face.

    They are the same on every machine, as Python's generator is.
    """
    import numpy as np

    draw = random.Random(7)
    hidden = SHAPE["hidden_size"]
    inner = SHAPE["intermediate_size"]

    def normal(*shape: int, scale: float = 0.5, mean: float = 0.0) -> Any:
        values = [draw.gauss(mean, scale) for _ in range(math.prod(shape))]
        return np.array(values, np.float32).reshape(shape)

    def linear(name: str, to: int, of: int) -> dict[str, Any]:
        return {f"{name}.weight": normal(to, of), f"{name}.bias": normal(to, scale=0.1)}

    def norm(name: str) -> dict[str, Any]:
        scale = normal(hidden, scale=0.1, mean=1.0)
        return {f"{name}.weight": scale, f"{name}.bias": normal(hidden, scale=0.1)}

    weights = {
        f"bert.embeddings.{name}_embeddings.weight": normal(rows, hidden)
        for name, rows in (("word", vocab_size), ("position", 512), ("token_type", 2))
    }
    weights |= norm("bert.embeddings.LayerNorm")
    for i in range(SHAPE["num_hidden_layers"]):
        layer = f"bert.encoder.layer.{i}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            weights |= linear(f"{layer}.attention.{part}", hidden, hidden)
        weights |= norm(f"{layer}.attention.output.LayerNorm")
        weights |= linear(f"{layer}.intermediate.dense", inner, hidden)
        weights |= linear(f"{layer}.output.dense", hidden, inner)
        weights |= norm(f"{layer}.output.LayerNorm")
    return weights | linear("qa_outputs", 2, hidden)


def answers(pipeline: Callable[..., Any]) -> dict[str, Any]:
    """Returns what a pipeline returns for each call, ``"ValueError"`` where it raises that."""
    results = {name: pipeline(*args, **options) for name, (args, options) in CALLS.items()}
    results["iterator"] = list(pipeline((one for one in [LIVE, LIVE]), top_k=2))
    for name, options in REFUSED.items():
        try:
            results[f"refused: {name}"] = pipeline(**options)
        except ValueError:
            results[f"refused: {name}"] = "ValueError"
    return results


def write_model(folder: Path) -> Path:
    """Writes the folder of a random BERT model, as transformers has it."""
    from safetensors.numpy import save_file

    pieces = vocabulary()
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    save_file(tensors(len(pieces)), folder / "model.safetensors", {"format": "pt"})
    model = {"model_type": "bert", "architectures": ["BertForQuestionAnswering"]}
    config = {**model, "vocab_size": len(pieces), **SHAPE}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    settings = {
        "do_lower_case": True,
        "model_max_length": 512,
        "tokenizer_class": "BertTokenizer",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return folder


def differences(expected: Any, actual: Any) -> list[str]:
    """Returns how the answers to a call differ; scores may by ``TOLERANCE``."""
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        pairs = zip(expected, actual, strict=True)
        return [text for one, other in pairs for text in differences(one, other)]
    is_same = expected == actual
    if isinstance(expected, dict) and isinstance(actual, dict):
        is_close = abs(expected["score"] - actual["score"]) < TOLERANCE
        is_same = is_close and {**expected, "score": 0} == {**actual, "score": 0}
    return [] if is_same else [f"{expected} and {actual}"]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns 1 if an answer differs."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.peers.pipeline",
        description="Compares calls of a reader with the pipeline of transformers 4.",
    )
    parser.add_argument(
        "--python",
        required=True,
        help="interpreter with transformers 4 and torch",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="file for its answers",
    )
    args = parser.parse_args(argv)
    import nq
    from nq.model.convert import convert

    with tempfile.TemporaryDirectory() as name:
        model = write_model(Path(name) / "model")
        converted = Path(name) / "converted"
        command = [args.python, "-P", __file__, str(model)]
        reference = json.loads(subprocess.check_output(command, text=True))
        convert(model, converted)
        with nq.pipeline("question-answering", converted) as pipeline:
            ours = answers(pipeline)
    if args.output:
        text = json.dumps(reference, indent=1, ensure_ascii=False) + "\n"
        args.output.write_text(text, encoding="utf-8")
    found = {call: differences(reference["answers"][call], ours[call]) for call in ours}
    for call, texts in found.items():
        print(f"{call:<28}{'same' if not texts else '; '.join(texts)}")
    print(
        f"nq {nq.__version__}, transformers {reference['transformers']}: "
        f"{sum(not texts for texts in found.values())} of {len(found)} calls give the same"
    )
    return int(any(found.values()))


def reference(folder: str) -> dict[str, Any]:
    """Returns the version and the answers of transformers 4, in whose environment this runs."""
    import transformers

    warnings.simplefilter("ignore")  # the calls by position are deprecated
    pipeline = transformers.pipeline("question-answering", model=folder)
    return {"transformers": transformers.__version__, "answers": answers(pipeline)}


if __name__ == "__main__":
    if sys.argv[1:] and Path(sys.argv[1]).is_dir():
        json.dump(reference(sys.argv[1]), sys.stdout)
    else:
        raise SystemExit(main())
