"""Damaged and hostile model folders: each must end each command with one line.

    python -m experiments.hostile_models --folders 100 --seed 1

Every folder is the bundled model with one seeded change: a number in ``config.json`` that no weight
supports, a broken index, nonsense in ``nq.json`` or in the tokenizer's files, a damaged header, a
broken TensorFlow checkpoint, a link out of the folder. The commands take turns. Expected is exit
code 1 and one line on stderr within the time limit. A change that leaves a usable model, such as a
flipped bit in the weights, may also be accepted; then the command must succeed. Everything else is
a failure.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.text_tables import markdown
from nq.bundle import bundled_model, bundled_sample
from nq.commands import arguments, terminal
from nq.errors import Error
from nq.model import names
from nq.model.folder import CONFIG, SETTINGS, TF_CONFIG, load_config, read_tensors
from nq.model.runtime import import_tensorflow
from nq.model.safetensors_file import INDEX, WEIGHTS

ONE_LINE, ACCEPTED = "one line", "accepted"
DEEP = "[" * 100_000 + "]" * 100_000
NONSENSE: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 10**9, 10**18, -(10**18), 10**400, float("nan"), float("inf")),
    *("", "8", "\x1b[2J", [], [[]], {}, {"a": 1}, ["a"], [1] * 10_000),
)
LOAD = """
import sys, nq
try:
    nq.load(sys.argv[1]).ask("who", nq.page_from_text("The lake is deep."))
except (ValueError, OSError, nq.Error) as error:
    sys.exit(f"nq: error: {error}")
"""
TOKENIZER = {
    "version": "1.0",
    "added_tokens": [{"id": 0, "content": "[PAD]", "special": True}],
    "normalizer": {"type": "BertNormalizer", "lowercase": True, "strip_accents": None},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {
        "type": "TemplateProcessing",
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    },
}

Rng = random.Random
Mutation = Callable[[Path, Rng], str]
"""Changes a folder and returns what it changed."""


def command_lines(folder: Path, work: Path) -> dict[str, list[str]]:
    """Returns the command line of each command on a model folder."""
    model, data, output = str(folder), str(bundled_sample()), str(work / "output")
    page = work / "page.txt"
    page.write_text("The lake is deep. It is old.\n", encoding="utf-8")
    return {
        "answer": [
            *("-m", "nq.answer", "--model", model, "--data", data, "--limit", "1"),
            *("--output", output, "--no-track"),
        ],
        "ask": ["-m", "nq", "ask", "who", str(page), "--model", model],
        "convert": ["-m", "nq", "convert", model, output],
        "load": ["-c", LOAD, model],
        "train": [
            *("-m", "nq", "train", "--init", model, "--data", data, "--limit", "1", "--output"),
            *(output, "--epochs", "1", "--batch-size", "1", "--max-seq-length", "96"),
            "--no-track",
        ],
        "tune": ["-m", "nq", "tune", "--model", model, "--data", data],
    }


def edit_json(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes the object in a JSON file, which need not exist."""
    values = json.loads(path.read_bytes()) if path.exists() else {}
    change(values)
    path.write_text(json.dumps(values), encoding="utf-8")


def set_somewhere(values: Any, rng: Rng) -> str:
    """Replaces one random value within nested objects and lists; returns its place."""
    keys = list(values) if isinstance(values, dict) else list(range(len(values)))
    key = rng.choice(keys)
    if isinstance(values[key], dict | list) and values[key] and rng.random() < 0.7:
        return f"{key}/{set_somewhere(values[key], rng)}"
    values[key] = rng.choice(NONSENSE)
    return f"{key}={values[key]!r:.20}"


def config_number(folder: Path, rng: Rng) -> str:
    """Replaces a number in ``config.json``."""
    config = json.loads((folder / CONFIG).read_bytes())
    key = rng.choice([key for key, value in config.items() if isinstance(value, int | float)])
    value = rng.choice(NONSENSE)
    edit_json(folder / CONFIG, lambda values: values.update({key: value}))
    return f"{key}={value!r:.20}"


def config_layers(folder: Path, rng: Rng) -> str:
    """Describes an ALBERT or BERT of far too many layers, rows or columns."""
    large = rng.choice([10**4, 10**6, 10**9, 2**62])
    keys = (
        *("num_hidden_layers", "vocab_size", "max_position_embeddings", "intermediate_size"),
        "head_size",
    )
    values = {rng.choice(keys): large} | rng.choice(
        [{}, {"model_type": "albert", "num_hidden_groups": 1, "embedding_size": 384}]
    )
    edit_json(folder / CONFIG, lambda config: config.update(values))
    return str(values)


def json_text(folder: Path, rng: Rng) -> str:
    """Replaces a JSON file by text that is broken or nested too deeply."""
    name = rng.choice([CONFIG, SETTINGS, "tokenizer_config.json"])
    text = rng.choice([DEEP, f'{{"a": {DEEP}}}', "", "{", "[]", "null", "\0\0", '{"a": 1e99999}x'])
    (folder / name).write_text(text, encoding="utf-8")
    return f"{name}: {text[:10]!r}"


def settings_value(folder: Path, rng: Rng) -> str:
    """Replaces a value in ``nq.json``."""
    changed: list[str] = []
    edit_json(folder / SETTINGS, lambda values: changed.append(set_somewhere(values, rng)))
    return changed[0]


def vocabulary(folder: Path, rng: Rng) -> str:
    """Replaces or removes ``vocab.txt``."""
    path = folder / "vocab.txt"
    rows = path.read_bytes().split(b"\n")
    contents = {
        "binary": rng.randbytes(5000),
        "empty": b"",
        "half": b"\n".join(rows[: len(rows) // 2]),
        "no [SEP]": b"\n".join(row for row in rows if row != b"[SEP]"),
        "one row": b"x" * 10**7,
        "UTF-16": path.read_text("utf-8").encode("utf-16"),
    }
    name = rng.choice([*contents, "missing"])
    path.unlink()
    if name in contents:
        path.write_bytes(contents[name])
    return name


def tokenizer_json(folder: Path, rng: Rng) -> str:
    """Replaces ``vocab.txt`` by a ``tokenizer.json`` with a wrong value."""
    rows = (folder / "vocab.txt").read_text("utf-8").split("\n")
    model: dict[str, Any] = {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "continuing_subword_prefix": "##",
    }
    model |= {"vocab": {piece: i for i, piece in enumerate(rows) if piece}}
    values: dict[str, Any] = {**json.loads(json.dumps(TOKENIZER)), "model": model}
    kind = rng.choice(["WordPiece", "BPE", "Unigram", "unknown"])
    model["type"] = kind
    place = set_somewhere(values, rng)
    (folder / "vocab.txt").unlink()
    (folder / "tokenizer.json").write_text(json.dumps(values), encoding="utf-8")
    return f"{kind} {place}"


def index(folder: Path, rng: Rng) -> str:
    """Replaces the weights by an index that names no usable files."""
    weights = (folder / WEIGHTS).rename(folder / "model-1.safetensors")
    outside = folder.parent / "outside.safetensors"
    maps: tuple[Any, ...] = (
        *({}, None, [], "x", {"a": 1}, {"a": None}, {"a": ["b"]}, {"a": "model-9.safetensors"}),
        *({"a": str(outside)}, {"a": "../outside.safetensors"}, {"a": ""}, {"a": "."}),
        *({"a": f"../{folder.name}/model-1.safetensors"}, {"a": "/dev/zero"}, {"a": CONFIG}),
        {str(i): f"model-{i}.safetensors" for i in range(100_000)},
    )
    weight_map = rng.choice(maps)
    os.link(weights, outside)
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}), encoding="utf-8")
    return f"{weight_map!r:.40}"


def weights_header(folder: Path, rng: Rng) -> str:
    """Changes the header of the weights; the data remain."""
    data = (folder / WEIGHTS).read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    name = rng.choice(sorted(header))
    kind = rng.choice(["dtype", "shape", "data_offsets", "name", "size", "place"])
    if kind == "name":
        header[rng.choice(["", "x" * 10**5, "\x1b[31m", f"{name}.scale"])] = header.pop(name)
    elif kind == "place":
        set_somewhere(header, rng)
    elif kind != "size":
        header[name][kind] = rng.choice(
            ["F64", "I64", "BOOL", "I8", "F8_E4M3", [10**9], [2**62, 4], [-1], [], [0, 0], "x", 0]
        )
    text = json.dumps(header).encode()
    length = rng.choice([0, 1, 2**40, 2**63]) if kind == "size" else len(text)
    replace(folder / WEIGHTS, length.to_bytes(8, "little") + text + data[8 + size :])
    return f"{kind} of {name[:40]}"


def weights_bytes(folder: Path, rng: Rng) -> str:
    """Truncates the weights or flips bytes of the header."""
    data = bytearray((folder / WEIGHTS).read_bytes())
    if rng.random() < 0.5:
        keep = rng.choice([0, 4, 8, 100, rng.randrange(len(data)), len(data) - 1])
        replace(folder / WEIGHTS, bytes(data[:keep]))
        return f"{keep} bytes"
    size = int.from_bytes(data[:8], "little")
    places = [rng.randrange(8 + size) for _ in range(rng.choice([1, 3, 30]))]
    for place in places:
        data[place] ^= 1 << rng.randrange(8)
    replace(folder / WEIGHTS, bytes(data))
    return f"flipped {places[:3]}"


def replace(path: Path, data: bytes) -> None:
    """Writes a file in the place of a link."""
    path.unlink()
    path.write_bytes(data)


def tensorflow_checkpoint(folder: Path, rng: Rng) -> str:
    """Replaces the weights by a TensorFlow checkpoint and damages that."""
    write_tensorflow_checkpoint(folder)
    prefix, files = folder / "bert.ckpt", sorted(folder.glob("bert.ckpt.*"))
    kind = rng.choice(["index", "data", "no data", "two", "config", "no index"])
    if kind in ("index", "data"):
        path = next(file for file in files if file.name.startswith(f"{prefix.name}.{kind}"))
        damage(path, rng)
    elif kind == "config":
        values = {rng.choice(["num_hidden_layers", "vocab_size"]): 10**9}
        edit_json(folder / TF_CONFIG, lambda config: config.update(values))
    elif kind == "two":
        shutil.copyfile(prefix.with_name("bert.ckpt.index"), folder / "other.index")
    else:
        next(f for f in files if f.name.startswith(f"{prefix.name}.{kind.split()[1]}")).unlink()
    return kind


def damage(path: Path, rng: Rng) -> None:
    """Truncates or flips bytes of a file."""
    data = bytearray(path.read_bytes())
    if rng.random() < 0.5:
        data = data[: rng.randrange(len(data))]
    else:
        for _ in range(rng.choice([1, 10, 100])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(bytes(data))


def write_tensorflow_checkpoint(folder: Path) -> None:
    """Replaces the weights of a folder by a checkpoint with Google's names."""
    import_tensorflow()
    from tensorflow import raw_ops

    config, tensors = load_config(folder), read_tensors(folder)
    theirs, ours = names.weight_table(config, names.TF1), names.weight_table(config)
    arrays = {
        name: tensors[own].T if theirs[path].transposed != weight.transposed else tensors[own]
        for path, weight in ours.items()
        for name, own in zip(theirs[path].tensors, weight.tensors, strict=True)
    }
    (folder / WEIGHTS).unlink()
    (folder / CONFIG).rename(folder / TF_CONFIG)
    raw_ops.SaveV2(
        prefix=str(folder / "bert.ckpt"),
        tensor_names=list(arrays),
        shape_and_slices=[""] * len(arrays),
        tensors=[np.ascontiguousarray(value) for value in arrays.values()],
    )


def link(folder: Path, rng: Rng) -> str:
    """Replaces or adds a file that is a link out of the folder."""
    (folder / "1_Pooling").mkdir()
    more = ("added_tokens.json", "tokenizer.json", "1_Pooling/config.json")
    name = rng.choice([*more, *sorted(path.name for path in folder.iterdir() if path.is_file())])
    target = rng.choice(["/etc/hostname", "/etc/passwd", "../outside"])
    (folder.parent / "outside").touch()
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(target if "_Pool" not in name else Path("/etc/hostname"))
    return f"{name} -> {target}"


MUTATIONS: dict[str, Mutation] = {
    "numbers in config.json": config_number,
    "huge numbers in config.json": config_layers,
    "broken JSON": json_text,
    "values in nq.json": settings_value,
    "vocab.txt": vocabulary,
    "tokenizer.json": tokenizer_json,
    "index of shards": index,
    "header of the weights": weights_header,
    "bytes of the weights": weights_bytes,
    "TensorFlow checkpoint": tensorflow_checkpoint,
    "links out of the folder": link,
}


@dataclass(frozen=True)
class Outcome:
    """How a command ended on a hostile folder.

    Args:
        kind: of the change.
        change: what was changed.
        command: which command.
        outcome: ``one line``, ``accepted``, or what went wrong.
        seconds: from start to end.
        message: the last line of stderr.
    """

    kind: str
    change: str
    command: str
    outcome: str
    seconds: float
    message: str


def hostile_folder(place: Path, kind: str, rng: Rng) -> tuple[Path, str]:
    """Makes a folder with one change of a kind; returns it and the change."""
    folder = shutil.copytree(bundled_model(), place / "model")
    edit_json(folder / SETTINGS, lambda values: values.pop("weights"))  # strangers give no digests
    return folder, MUTATIONS[kind](folder, rng)


def attempt(line: Sequence[str], work: Path, limit_s: float) -> tuple[str, float, str]:
    """Runs a command; returns its outcome, the seconds and the last line of stderr."""
    root = Path(__file__).parents[1]
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, *line],
        cwd=work,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _, stderr = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        stderr = process.communicate()[1] + "\ntimeout"
    seconds = time.perf_counter() - started
    lines = stderr.strip().splitlines()
    return judge(process.returncode, lines), seconds, lines[-1] if lines else ""


def judge(code: int, lines: Sequence[str]) -> str:
    """Returns the outcome of a command by its exit code and its lines on stderr."""
    if code == 0:
        return ACCEPTED
    if any(line.startswith("Traceback") for line in lines):
        return "traceback"
    if lines[-1:] == ["timeout"]:
        return "timeout"
    errors = [line for line in lines if line.startswith("nq: error: ")]
    others = [line for line in lines if not line.startswith("nq: ")]
    if code == 1 and len(errors) == 1 and not others:
        return ONE_LINE
    return f"exit code {code}, {len(lines)} lines"


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.hostile_models",
        description="Runs the commands on damaged and hostile model folders.",
    )
    parser.add_argument("--folders", type=arguments.positive, default=100, metavar="N")
    parser.add_argument("--seed", type=arguments.count_from_0, default=0, metavar="N")
    parser.add_argument("--kinds", nargs="+", choices=MUTATIONS, metavar="KIND")
    parser.add_argument("--commands", nargs="+", metavar="COMMAND", help="default: all in turn")
    parser.add_argument("--limit-s", type=float, default=20.0, metavar="S")
    arguments.add_common(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Runs the command."""
    outcomes = []
    with terminal.ProgressBar("hostile", "folders") as bar:
        for number in range(args.folders):
            outcomes.append(one(number, args))
            bar(1, args.folders)
    bad = [o for o in outcomes if o.outcome not in (ONE_LINE, ACCEPTED)]
    if args.json:
        terminal.print_json({"outcomes": [asdict(outcome) for outcome in outcomes]})
    else:
        print(table(outcomes), end="")
        for o in bad:
            print(f"{o.kind}: {o.change!r} nq {o.command}: {o.outcome}: {o.message}")
    if bad:
        raise Error(f"{len(bad)} of {len(outcomes)} folders did not end in one line")
    return 0


def one(number: int, args: argparse.Namespace) -> Outcome:
    """Returns the outcome of one folder, whose number and seed determine it."""
    rng = random.Random(f"{args.seed} {number}")
    kinds = args.kinds or list(MUTATIONS)
    kind = kinds[number % len(kinds)]
    with tempfile.TemporaryDirectory(prefix="nq-hostile-") as place:
        folder, change = hostile_folder(Path(place), kind, rng)
        lines = command_lines(folder, Path(place))
        command = rng.choice(args.commands or sorted(lines))
        result = attempt(lines[command], Path(place), args.limit_s)
    return Outcome(kind, change, command, *result)


def table(outcomes: Sequence[Outcome]) -> str:
    """Returns a Markdown table with a row for each kind."""
    head = ("change", "folders", ONE_LINE, ACCEPTED, "other", "longest s")
    rows = []
    for kind in dict.fromkeys(outcome.kind for outcome in outcomes):
        some = [outcome for outcome in outcomes if outcome.kind == kind]
        counts = [sum(o.outcome == wanted for o in some) for wanted in (ONE_LINE, ACCEPTED)]
        numbers = (len(some), *counts, len(some) - sum(counts))
        rows.append((kind, *map(str, numbers), f"{max(o.seconds for o in some):.1f}"))
    return markdown(head, *rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return terminal.run(run, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
