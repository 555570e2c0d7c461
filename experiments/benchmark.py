"""Measures speed and memory of everything around the model.

    python -m experiments.benchmark --data ../shared/data/pages

- preprocessing: windows per CPU second of one process, from JSON to TFRecords, and the ratio to the
  110 of the 2020 port's Python code on the same pages;
- prediction: reading, scoring and storing windows on disk, compared with scoring the same windows
  in memory; medians of alternating rounds;
- postprocessing: its time, with the reading of the examples, relative to that prediction;
- memory: peak resident memory of whole runs over the pages once and ten times, with a model of two
  narrow layers, whose own memory is small.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import orjson

from experiments import Values, command
from nq.commands import arguments
from nq.formats import lines
from nq.formats.input_files import find_files
from nq.inference.scorer import score_examples
from nq.lab.rounds import answer_in_process
from nq.model.folder import ModelFolder
from nq.model.runtime import import_tensorflow
from nq.postprocess.decision import decide
from nq.preprocess.prepared import Request, Windows, prepare
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.questions import Questions
from nq.records import Windowed
from nq.runs.config import Compute
from nq.runs.job import Job
from nq.runs.score_store import ScoreStore, StoringScorer

PREDECESSOR_WINDOWS_PER_CPU_S = 110
ROUNDS = 3
NARROW: Values = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}


def _options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = arguments.PROFILES_HELP
    arguments.add_data(parser)
    command.add_one_model(parser)
    arguments.add_profile(parser)
    arguments.add_settings(parser, Compute, ["batch_size"])
    command.add_option(parser, "windows", 320, "windows in a round, to the end of an example")
    parser.add_argument(
        "--no-memory",
        action="store_true",
        help="skip the memory, which is slow",
    )


def prediction(args: argparse.Namespace, request: Request, folder: Path) -> Values:
    """Returns the speed on disk, compared with memory, and the share of postprocessing.

    Windows are written to ``prepared`` in the folder, scores to ``scores``.
    """
    from nq.inference.load import ScorerSpec, load_predictor

    model = command.one_model(args)
    batch_size = arguments.settings(Compute, args).batch_size
    prepared = prepare(request, folder / "prepared")
    spec = ScorerSpec(model, args.profile, batch_size)
    spec = spec.calibrated(lambda: (one.example for one in prepared))
    predictor = load_predictor(spec)
    in_memory = list(_first_examples(prepared, args.windows))
    n_windows = sum(map(len, in_memory))
    rounds = []
    for number in range(1 + ROUNDS):
        store = ScoreStore(folder / "scores", {"round": number})
        on_disk = _first_examples(prepared, args.windows)
        disk_s = _seconds(score_examples(StoringScorer(predictor, store), on_disk))
        memory_s = _seconds(score_examples(predictor, in_memory))
        rounds.append((disk_s, memory_s))
    # The first round compiles.
    disk_s, memory_s = map(statistics.median, zip(*rounds[1:], strict=True))
    started = time.perf_counter()
    for one in prepared:
        key = one.source.file_index, one.source.line
        if key not in store:
            break
        decide(one.example, store[key], model.decision)
    postprocessing_s = time.perf_counter() - started
    return {
        "prediction, windows per second": n_windows / disk_s,
        "prediction on disk over in memory, %": 100 * (disk_s / memory_s - 1),
        "postprocessing over prediction, %": 100 * postprocessing_s / disk_s,
    }


def _seconds(scored: Iterator[object]) -> float:
    """Returns the seconds until an iterator has ended."""
    started = time.perf_counter()
    for _ in scored:
        pass
    return time.perf_counter() - started


def _first_examples(prepared: Windows, count: int) -> Iterator[Windowed]:
    """Yields the first examples with their windows, about ``count`` windows in all."""
    for one in prepared:
        if count <= 0:
            return
        count -= len(one)
        yield one


def memory(files: Sequence[str], model: Path, folder: Path) -> Values:
    """Returns the peak memory of whole runs over the data once and ten times, in MB."""
    from experiments.peers.inputs import random_model

    tiny = random_model(
        replace(ModelFolder(model).config, **NARROW),
        folder / "tiny",
        model,
    )
    peaks = {}
    for times in (1, 10):
        data = folder / f"{times}.jsonl"
        data.write_bytes(b"".join(_repeated(files, times)))
        result = answer_in_process(Job([data], tiny, output=folder / f"{times}"))
        megabytes = result["peak_memory_bytes"] / 2**20
        peaks[f"peak memory at {result['examples']} pages, MB"] = megabytes
    once, ten_times = peaks.values()
    return {**peaks, "memory, ten times the pages over once": ten_times / once}


def _repeated(files: Sequence[str], times: int) -> Iterator[bytes]:
    """Yields the lines of all files several times, each with an id of its own."""
    number = 0
    for _ in range(times):
        for path in files:
            for _, line in lines.rows(path):
                if isinstance(line, bytes):
                    number += 1
                    yield orjson.dumps(orjson.loads(line) | {"example_id": number}) + b"\n"


def benchmark(args: argparse.Namespace) -> int:
    """Runs the command."""
    import_tensorflow()
    model = ModelFolder.open(args.model).path
    files = find_files(args.data)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        request = Request(
            Questions(tuple(files)), load_tokenizer(model), ModelFolder(model).settings.windows
        )
        started = time.process_time()
        rate = prepare(request, folder / "windows").counts.windows / (time.process_time() - started)
        result = {
            "preprocessing, windows per CPU second": rate,
            "preprocessing against the 2020 port": rate / PREDECESSOR_WINDOWS_PER_CPU_S,
            **prediction(args, request, folder),
        }
        if not args.no_memory:
            result |= memory(files, model, folder)
    return command.show(result, args)


main = command.main(benchmark, _options)
