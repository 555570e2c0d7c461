"""Model folders of strangers: the bundled model with one change, given to a command.

A change is a value that no weight supports, a broken index, nonsense in settings or tokenizer, a
damaged header, a link out of the folder. Some leave a usable model; then the command must succeed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from experiments.attacks.frame import DONE, REFUSED, Row, chosen, run_process
from experiments.attacks.mutations import change_value
from nq.bundle import bundled_model, bundled_sample
from nq.model.folder import CONFIG, SETTINGS
from nq.model.safetensors_file import INDEX, WEIGHTS

VOCABULARY, TOKENIZER = "vocab.txt", "tokenizer.json"
DEEP = "[" * 100_000 + "]" * 100_000
WRONG_ENTRIES: tuple[Any, ...] = (
    *("F64", "I64", "BOOL", "I8", "F8_E4M3", "x", 0),
    *([10**9], [2**62, 4], [-1], [], [0, 0]),
)
TEXTS = (DEEP, f'{{"a": {DEEP}}}', "", "{", "[]", "null", "\0\0", '{"a": 1e99999}x')
LOAD = """
import sys, nq
try:
    nq.load("model").ask("who", nq.page_from_text("The lake is deep."))
except (ValueError, OSError, nq.Error) as error:
    sys.exit(f"nq: error: {error}")
"""
FILES = {"page.txt": "The lake is deep. It is old.\n", "load.py": LOAD}
COMMANDS = {
    "answer": "-m nq answer --model model --data data.jsonl --limit 1 --output out --no-track",
    "ask": "-m nq ask who page.txt --model model",
    "convert": "-m nq convert model out",
    "load": "load.py",
    "train": "-m nq train --init model --data data.jsonl --limit 1 --output out --no-track "
    "--epochs 1 --batch-size 1 --max-seq-length 96",
    "tune": "-m nq tune --model model --data data.jsonl",
}
"""The commands that read a model folder, which take turns."""


def replace(path: Path, content: Any) -> None:
    """Writes bytes, text or a JSON value into a file, but not through a link."""
    path.unlink(missing_ok=True)
    if not isinstance(content, bytes):
        text = content if isinstance(content, str) else json.dumps(content)
        content = text.encode("utf-8", "surrogatepass")
    path.write_bytes(content)


def value(name: str, folder: Path, rng: random.Random) -> str:
    """Replaces a value in a JSON file."""
    values = json.loads((folder / name).read_bytes())
    place = change_value(values, rng)
    replace(folder / name, values)
    return place


def sizes(folder: Path, rng: random.Random) -> str:
    """Describes an ALBERT or BERT of far too many layers, rows or columns."""
    keys = "num_hidden_layers vocab_size max_position_embeddings intermediate_size head_size"
    values: dict[str, Any] = {rng.choice(keys.split()): rng.choice([10**4, 10**6, 10**9, 2**62])}
    albert = {"model_type": "albert", "num_hidden_groups": 1, "embedding_size": 384}
    values |= rng.choice([{}, albert])
    replace(folder / CONFIG, {**json.loads((folder / CONFIG).read_bytes()), **values})
    return str(values)


def text(folder: Path, rng: random.Random) -> str:
    """Removes a file of text, cuts it, encodes it again, or replaces it."""
    name = rng.choice([CONFIG, SETTINGS, "tokenizer_config.json", VOCABULARY, VOCABULARY])
    data = (folder / name).read_bytes()
    contents = {
        **{f"{text[:10]!r}": text for text in TEXTS},
        "half": data[: len(data) // 2],
        "no [SEP]": data.replace(b"\n[SEP]\n", b"\n"),
        "UTF-16": data.decode().encode("utf-16"),
        "binary": rng.randbytes(5000),
        "one row": b"x" * 10**7,
    }
    kind = rng.choice(["missing", *contents])
    (folder / name).unlink()
    if kind in contents:
        replace(folder / name, contents[kind])
    return f"{name}: {kind}"


def tokenizer(folder: Path, rng: random.Random) -> str:
    """Replaces the vocabulary by a ``tokenizer.json`` with a wrong value."""
    pieces = (folder / VOCABULARY).read_text("utf-8").split("\n")
    kind = rng.choice(["WordPiece", "BPE", "Unigram", "unknown"])
    model = {"type": kind, "unk_token": "[UNK]", "continuing_subword_prefix": "##"}
    pair = [{"Sequence": {"id": name, "type_id": n}} for n, name in enumerate("AB")]
    values = {
        "version": "1.0",
        "added_tokens": [{"id": 0, "content": "[PAD]", "special": True}],
        "normalizer": {"type": "BertNormalizer", "lowercase": True, "strip_accents": None},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "pair": pair},
        "model": {**model, "vocab": {piece: n for n, piece in enumerate(pieces) if piece}},
    }
    place = change_value(values, rng)
    (folder / VOCABULARY).unlink()
    replace(folder / TOKENIZER, values)
    return f"{kind} {place}"


def index(folder: Path, rng: random.Random) -> str:
    """Replaces the weights by an index that names no usable files."""
    weights = (folder / WEIGHTS).rename(folder / "model-1.safetensors")
    outside = folder.parent / "outside.safetensors"
    outside.hardlink_to(weights)
    names = [str(outside), f"../{outside.name}", f"../{folder.name}/{weights.name}", CONFIG]
    names += ["", ".", "/dev/zero", "model-9.safetensors"]
    maps: tuple[Any, ...] = (
        *({}, None, [], "x", {"a": 1}, {"a": None}, {"a": ["b"]}),
        *({"a": name} for name in names),
        {str(i): f"model-{i}.safetensors" for i in range(100_000)},
    )
    weight_map = rng.choice(maps)
    replace(folder / INDEX, {"weight_map": weight_map})
    return f"{weight_map!r:.40}"


def weights(folder: Path, rng: random.Random) -> str:
    """Cuts the weights, or changes their header; the data remain."""
    data = bytearray((folder / WEIGHTS).read_bytes())
    size = 8 + int.from_bytes(data[:8], "little")
    kind = rng.choice(["cut", "bits", "length", "name", "place", "dtype", "shape", "data_offsets"])
    if kind == "cut":
        del data[rng.choice([0, 4, 8, 100, rng.randrange(len(data)), len(data) - 1]) :]
    elif kind == "bits":
        for _ in range(rng.choice([1, 3, 30])):
            data[rng.randrange(size)] ^= 1 << rng.randrange(8)
    elif kind == "length":
        data[:8] = rng.choice([0, 1, 2**40, 2**63]).to_bytes(8, "little")
    else:
        header = json.loads(data[8:size])
        header.pop("__metadata__", None)
        name = rng.choice(sorted(header))
        if kind == "name":
            header[rng.choice(["", "x" * 10**5, "\x1b[31m", f"{name}.scale"])] = header.pop(name)
        elif kind == "place":
            change_value(header, rng)
        else:
            header[name][kind] = rng.choice(WRONG_ENTRIES)
        content = json.dumps(header).encode()
        data[:size] = len(content).to_bytes(8, "little") + content
    replace(folder / WEIGHTS, bytes(data))
    return kind


def link(folder: Path, rng: random.Random) -> str:
    """Replaces or adds a file that is a link out of the folder."""
    (folder / "1_Pooling").mkdir()
    more = ("added_tokens.json", TOKENIZER, "1_Pooling/config.json")
    name = rng.choice([*more, *sorted(path.name for path in folder.iterdir() if path.is_file())])
    outside = folder.parent / "outside"
    outside.touch()
    target = rng.choice(["/etc/hostname", "/etc/passwd", str(outside)])
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(target)
    return f"{name} -> {target}"


Change = Callable[[Path, random.Random], str]
"""Changes a folder; returns what it changed."""
EITHER = (DONE, REFUSED)
CHANGES: dict[str, tuple[Change, tuple[str, ...]]] = {
    "no change": (lambda folder, rng: "", (DONE,)),
    "values in config.json": (partial(value, CONFIG), EITHER),
    "huge numbers in config.json": (sizes, EITHER),
    "broken text": (text, EITHER),
    "values in nq.json": (partial(value, SETTINGS), EITHER),
    "tokenizer.json": (tokenizer, EITHER),
    "index of shards": (index, (REFUSED,)),
    "model.safetensors": (weights, EITHER),
    "links out of the folder": (link, EITHER),
}
"""The kinds of changes, each with the verdicts that are right."""


def rows(args: argparse.Namespace, folder: Path, rng: random.Random) -> Iterator[Row]:
    """Gives ``args.models`` folders, each with a change of the next kind, to a random command."""
    kinds = chosen(args, CHANGES)
    for number, name in zip(range(args.models if kinds else 0), itertools.cycle(kinds)):
        case = folder / str(number)
        case.mkdir()
        model = shutil.copytree(bundled_model(), case / "model")
        settings = json.loads((model / SETTINGS).read_bytes())
        settings.pop("weights")  # strangers give no digests
        replace(model / SETTINGS, settings)
        make, expected = CHANGES[name]
        change = make(model, rng)
        for file, content in FILES.items():
            (case / file).write_text(content, encoding="utf-8")
        (case / "data.jsonl").symlink_to(bundled_sample())
        command = rng.choice(args.commands)
        end = run_process(COMMANDS[command], case, args.limit_s)
        text = f"{change!r}: {end.last}"
        yield Row(name, f"nq {command}", end.verdict(), expected, text, *end.cost)
        shutil.rmtree(case)
