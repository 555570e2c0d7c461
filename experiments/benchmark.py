"""Speed and memory of everything around the model, as a table.

    python -m experiments.benchmark --data ../shared/data/pages

- preprocessing: windows per CPU second of one process, read and encoded, beside the 110 of
  the 2020 port's Python code on the same pages;
- loop: the prediction over TFRecords beside scoring the same windows, ready in memory,
  in alternating rounds, medians;
- postprocessing: its share of that prediction;
- memory: peak resident memory of whole runs over the pages once and ten times, with a model
  of two narrow layers so that what grows is seen.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from nq.commands import terminal
from nq.config import ModelConfig, WindowConfig
from nq.inference.profile import Profile
from nq.model.runtime import import_tensorflow

PREDECESSOR_WINDOWS_PER_CPU_S = 110
ROUNDS = 3
TINY = ModelConfig(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
MEASURE = """
import resource, sys
from nq.commands.main import console
code = console(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
raise SystemExit(code)
"""


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = argparse.ArgumentParser(description="Speed and memory of everything but the model.")
    parser.add_argument("--data", nargs="+", required=True, metavar="FILE")
    parser.add_argument("--model", type=Path, metavar="DIR", help="default: the bundled model")
    parser.add_argument("--profile", default="grappler")
    parser.add_argument("--batch-size", type=terminal.positive, default=16, metavar="N")
    parser.add_argument(
        "--windows", type=terminal.positive, default=320, metavar="N", help="windows in a round"
    )
    parser.add_argument("--no-memory", action="store_true", help="leave the slow part out")
    terminal.add_common(parser)
    return parser


def preprocessing(files: Sequence[str], model: Path, windows: WindowConfig) -> dict[str, Any]:
    """Windows per CPU second from jsonl to serialized records, in this process."""
    from nq.formats.inputs import read_records
    from nq.formats.tfrecord import encode_records
    from nq.preprocess.features import features
    from nq.preprocess.tokenizers.load import load_tokenizer
    from nq.records import Example

    tokenizer, done = load_tokenizer(model), 0
    started = time.process_time()
    for path in files:
        for source, item in read_records(path):
            if isinstance(item, Example):
                done += sum(1 for _ in encode_records(features(item, tokenizer, windows), source))
    rate = done / (time.process_time() - started)
    return {
        "preprocessing, windows per CPU second": rate,
        "preprocessing against the 2020 port": rate / PREDECESSOR_WINDOWS_PER_CPU_S,
    }


def prediction(
    args: argparse.Namespace, files: Sequence[str], model: Path, folder: Path
) -> dict[str, Any]:
    """The loop against the bare step, and postprocessing against the loop."""
    from nq.formats.inputs import read_records
    from nq.inference import loading, predict
    from nq.model import checkpoint
    from nq.postprocess.decision import decide
    from nq.preprocess.prepare import Request, prepare
    from nq.preprocess.tokenizers.load import load_tokenizer
    from nq.records import Example
    from nq.runs.score_store import Results

    own = checkpoint.load_settings(model)
    prepared = prepare(Request(tuple(files), str(model), own.windows), folder / "windows")
    shard = _first_records(prepared.shards[0], folder / "some.tfrecord", args.windows)
    results = folder / "results"
    predictor = loading.Loader(
        model, load_tokenizer(model), own.windows, "default", args.batch_size, dict
    ).predictor(Profile.parse(args.profile))
    with predictor.ready():
        ready = list(predict.parts(shard, predictor.shape))
        loops, bare = [], []
        for number in range(ROUNDS):
            timing = predict.predict(predictor, [shard], results, {"round": number})
            loops.append(timing.steady_s)
            started = time.perf_counter()
            for rows in ready:
                predictor.scores(rows)
            bare.append(time.perf_counter() - started)
    loop, step = statistics.median(loops), statistics.median(bare)
    started = time.perf_counter()
    found = Results(results, (shard,))
    for path in files:
        for source, item in read_records(path):
            if (source.file_index, source.line) not in found:
                break
            if isinstance(item, Example):
                decide(item, found[source.file_index, source.line], own.decision)
    post = time.perf_counter() - started
    return {
        "prediction, windows per second": timing.windows / loop,
        "loop over the bare step, %": 100 * (loop / step - 1),
        "postprocessing over prediction, %": 100 * post / loop,
    }


def memory(files: Sequence[str], model: Path, folder: Path) -> dict[str, Any]:
    """Peak memory of whole runs over the data once and ten times, in MB."""
    tiny = _tiny_model(model, folder / "tiny")
    peaks = {}
    for times in (1, 10):
        data = folder / f"{times}.jsonl"
        data.write_bytes(b"".join(_repeated(files, times)))
        command = ["answer", "--data", str(data), "--model", str(tiny), "--no-track", "--json"]
        command += ["--output", str(folder / f"run-{times}")]
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, *command], capture_output=True, text=True, check=True
        )
        pages = json.loads(done.stdout)["examples"]
        peaks[f"peak memory at {pages} pages, MB"] = int(done.stderr.split()[-1]) / 1024
    first, second = peaks.values()
    return {**peaks, "memory, ten times the pages over once": second / first}


def _first_records(shard: Path, path: Path, count: int) -> Path:
    """A shard of whole examples from the beginning of another one, about ``count`` windows."""
    import tensorflow as tf

    from nq.model.data import records, window_ids

    with tf.io.TFRecordWriter(str(path)) as writer:
        for number, record in enumerate(records([shard]), start=1):
            writer.write(record.numpy())
            window, windows = window_ids(record)
            if number >= count and window + 1 == windows:
                break
    return path


def _tiny_model(model: Path, folder: Path) -> Path:
    """Two narrow layers with the tokenizer and the windows of ``model``."""
    from nq.model import checkpoint, joint
    from nq.preprocess.tokenizers.load import load_tokenizer

    own = checkpoint.load_settings(model)
    checkpoint.save(folder, joint.build(TINY, 8), TINY, load_tokenizer(model), own, "tiny")
    return folder


def _repeated(files: Sequence[str], times: int) -> Iterator[bytes]:
    """The lines of all files, again and again, each with an id of its own."""
    from nq.formats.inputs import read_lines

    number = 0
    for _ in range(times):
        for path in files:
            for _source, line in read_lines(path):
                if isinstance(line, bytes):
                    number += 1
                    yield orjson.dumps(orjson.loads(line) | {"example_id": number}) + b"\n"


def benchmark(args: argparse.Namespace) -> int:
    """Runs the command."""
    import_tensorflow()
    from nq.bundle import bundled_model
    from nq.formats.inputs import find_files
    from nq.model.checkpoint import load_settings

    model, files = args.model or bundled_model(), find_files(args.data)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        result = preprocessing(files, model, load_settings(model).windows)
        result |= prediction(args, files, model, folder)
        if not args.no_memory:
            result |= memory(files, model, folder)
    terminal.print_result(result, args.json)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    return terminal.run(benchmark, parser(), argv)


if __name__ == "__main__":
    raise SystemExit(main())
