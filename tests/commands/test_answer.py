"""The whole line, with the bundled model and with a tiny one, in-process and as a command."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from nq.bundle import bundled_model, bundled_sample
from nq.config import DECISION_RULES, DecisionConfig, ModelConfig, WindowConfig
from nq.evaluation import labels
from nq.inference.profile import THESIS, Profile, profiles
from nq.model import checkpoint, joint
from nq.model.checkpoint import load_settings
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.runs.job import Job, Report
from nq.runs.run import run
from tests import nq_records

ROOT = Path(__file__).parent.parent
NATIVE = ROOT.parent / "shared" / "data" / "native"
QUESTIONS = 12
WINDOWS = WindowConfig(max_seq_length=256)
KEYS = {
    "profile",
    "examples",
    "windows",
    "answered",
    "dead_letters",
    "metrics",
    "time",
    "output",
    "run_id",
}


def command(*arguments: object, folder: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nq", "answer", *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        **more,
    )


def answers(report: Report) -> list[dict[str, Any]]:
    text = (report.output / "predictions.json").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = json.loads(text)["predictions"]
    return found


def bundled_job(profile: str, root: Path) -> Job:
    return Job(
        (str(bundled_sample()),),
        bundled_model(),
        Profile.parse(profile),
        WINDOWS,
        DecisionConfig(),
        batch_size=8,
        root=root,
        limit=QUESTIONS,
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def baseline(runs: Path) -> Report:
    return run(bundled_job("baseline", runs), rows=QUESTIONS)


@pytest.mark.parametrize("profile", [*map(str, profiles(THESIS)[1:]), "grappler+frozen+buckets"])
def test_every_profile_answers_as_baseline(profile: str, runs: Path, baseline: Report) -> None:
    report = run(bundled_job(profile, runs))
    mixed = "mixed" in profile
    assert report.precision == ("bfloat16" if mixed else "float32")
    assert report.examples == QUESTIONS
    drift, changed = 0.0, 0
    for mine, theirs in zip(answers(report), answers(baseline), strict=True):
        drift = max(drift, abs(mine["long_answer_score"] - theirs["long_answer_score"]))
        spans = ("long_answer", "short_answers", "yes_no_answer")
        changed += any(mine[name] != theirs[name] for name in spans)
    assert drift < (1.0 if mixed else 1e-3)
    assert changed <= (1 if mixed else 0)


def test_a_finished_run_says_what_it_was_asked(baseline: Report) -> None:
    told = json.loads((baseline.output / "job.json").read_text(encoding="utf-8"))
    job = Job.from_dict(told["job"])
    assert job.to_dict() == told["job"] == bundled_job("baseline", Path("elsewhere")).to_dict()
    assert told["request"] == job.requests[0].description
    assert not (baseline.output / "results").exists()


def test_bundled_model_reads(baseline: Report) -> None:
    assert sum(bool(row.right) for row in baseline.rows) >= QUESTIONS / 3


def test_phases_are_timed_apart(baseline: Report) -> None:
    phases = {"preprocess_s", "load_s", "compile_s", "warmup_s", "predict_s", "postprocess_s"}
    assert phases <= set(baseline.time)
    assert sum(baseline.time[p] for p in phases) <= baseline.time["total_s"] * 1.01


@pytest.mark.parametrize("rule", DECISION_RULES)
def test_one_prediction_for_every_example(rule: str, tiny_model: Path, tmp_path: Path) -> None:
    done = command(
        *("--model", tiny_model, "--no-track", "--json", "--decision", rule), folder=tmp_path
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert set(result) >= KEYS
    predictions = labels.read_predictions(Path(tmp_path, result["output"], "predictions.json"))
    assert set(predictions) == set(labels.read_gold(bundled_sample()))
    assert result["examples"] == len(predictions)


def test_stdout_is_one_json_object_and_stderr_is_quiet(tiny_model: Path, tmp_path: Path) -> None:
    done = command("--model", tiny_model, "--json", "--limit", 2, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""
    assert json.loads(done.stdout)["run_id"]


@pytest.mark.skipif(not NATIVE.is_dir(), reason="needs ../shared/data")
@pytest.mark.parametrize("compat", ["ours", "bert-joint", "kisialiou"])
@pytest.mark.parametrize(
    "name",
    [
        "v1.0-dev-full-1.jsonl.gz",
        "simplified-dev-sample.jsonl",
        "simplified-test-1.jsonl",
        "simplified-train-1.jsonl",
        "simplified-train-sample.jsonl",
    ],
)
def test_native_records(name: str, compat: str, tiny_model: Path, tmp_path: Path) -> None:
    windows = replace(load_settings(tiny_model).windows, doc_stride=64, compat=compat)
    job = Job(
        (str(NATIVE / name),),
        tiny_model,
        Profile(),
        windows,
        DecisionConfig(),
        batch_size=32,
        root=tmp_path,
    )
    report = run(job)
    assert report.examples == 1
    assert report.dead_letters == 0
    assert bool(report.metrics) == ("test" not in name)


def test_v1_answers_carry_bytes(tiny_model: Path, tmp_path: Path) -> None:
    tokens = ["<P>", "The", "river", "is", "long", "</P>"]
    starts = [10 * i for i in range(len(tokens))]
    record = {
        "example_id": -5,
        "question_text": "is it long",
        "document_tokens": [
            {"token": t, "html_token": t[0] == "<", "start_byte": s, "end_byte": s + len(t)}
            for t, s in zip(tokens, starts, strict=True)
        ],
        "long_answer_candidates": [{"start_token": 0, "end_token": 6, "top_level": True}],
    }
    data = tmp_path / "one.jsonl"
    data.write_text(json.dumps(record))
    decision = DecisionConfig(long_threshold=-1e9, short_threshold=-1e9)
    windows = load_settings(tiny_model).windows
    job = Job((str(data),), tiny_model, Profile(), windows, decision, 4, root=tmp_path)
    long = answers(run(job))[0]["long_answer"]
    assert long == {"start_token": 0, "end_token": 6, "start_byte": 0, "end_byte": 54}


def test_killed_and_started_again_is_the_same_byte_for_byte(
    tiny_model: Path, tmp_path: Path
) -> None:
    data = tmp_path / "many.jsonl"
    lines = bundled_sample().read_text(encoding="utf-8").splitlines()
    with data.open("w", encoding="utf-8") as file:
        for i in range(60):
            file.write(json.dumps({**json.loads(lines[i % len(lines)]), "example_id": i}) + "\n")
    arguments = ("--data", data, "--model", tiny_model, "--no-track", "--json", "--batch-size", 8)
    whole = command(*arguments, "--output", "whole", folder=tmp_path)
    assert whole.returncode == 0, whole.stderr
    killed = subprocess.Popen(
        [sys.executable, "-m", "nq", "answer", *map(str, arguments), "--output", "killed"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not list((tmp_path / "killed" / "results").glob("*.npz")):
        assert killed.poll() is None, "ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert not (tmp_path / "killed" / "predictions.json").exists()
    again = command(*arguments, "--output", "killed", folder=tmp_path)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["resumed_windows"] > 0
    same = [(tmp_path / name / "predictions.json").read_bytes() for name in ("whole", "killed")]
    assert same[0] == same[1]


def test_a_thousand_good_and_two_hundred_broken_lines(tiny_model: Path, tmp_path: Path) -> None:
    broken = (
        b"{",
        b"\xff\xfe",
        b"[]",
        nq_records.to_line(
            {**nq_records.simplified(), "long_answer_candidates": [{"start_token": 9}]}
        ),
        nq_records.to_line(nq_records.changed(nq_records.simplified(), "question_text", ...)),
    )
    data = tmp_path / "mixed.jsonl"
    with data.open("wb") as file:
        for i in range(1000):
            file.write(nq_records.to_line(nq_records.simplified(i, words=20)).rstrip() + b"\n")
            if i % 5 == 0:
                file.write(broken[i // 5 % len(broken)].rstrip() + b"\n")
    done = command(
        *("--data", data, "--model", tiny_model, "--no-track", "--json", "--output", "out"),
        *("--profile", "grappler+buckets", "--batch-size", 64),
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["examples"], result["dead_letters"]) == (1000, 200)
    predictions = labels.read_predictions(tmp_path / "out" / "predictions.json")
    assert set(predictions) == set(range(1000))
    letters = (tmp_path / "out" / "dead_letters.jsonl").read_text(encoding="utf-8").splitlines()
    assert len({json.loads(letter)["line"] for letter in letters}) == 200


def test_repeated_ids_become_dead_letters(tiny_model: Path, tmp_path: Path) -> None:
    first = bundled_sample().read_text(encoding="utf-8").splitlines()[0]
    data = tmp_path / "twice.jsonl"
    data.write_text(f"{first}\n{first}\n", encoding="utf-8")
    done = command(
        *("--data", data, "--model", tiny_model, "--no-track", "--json"), folder=tmp_path
    )
    result = json.loads(done.stdout)
    assert (done.returncode, result["examples"], result["dead_letters"]) == (0, 1, 1)
    letters = Path(tmp_path, result["output"], "dead_letters.jsonl").read_text(encoding="utf-8")
    assert "was there before" in letters


def test_strict_makes_a_bad_record_an_error(tiny_model: Path, tmp_path: Path) -> None:
    data = tmp_path / "bad.jsonl"
    data.write_text("{}\n")
    done = command("--data", data, "--model", tiny_model, "--no-track", "--strict", folder=tmp_path)
    assert done.returncode == 1
    assert "bad record" in done.stderr
    assert "Traceback" not in done.stderr


def test_dead_tracking_server_does_not_cost_the_answers(tiny_model: Path, tmp_path: Path) -> None:
    done = command(
        *("--model", tiny_model, "--limit", 2, "--json", "--output", "out"),
        *("--tracking-uri", "http://127.0.0.1:9"),
        folder=tmp_path,
    )
    assert done.returncode == 0
    assert json.loads(done.stdout)["run_id"] is None
    assert (tmp_path / "out" / "predictions.json").is_file()
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("--data", "nowhere.jsonl"), 1, "no file matches nowhere.jsonl"),
        (("--model", "nowhere"), 1, "nowhere"),
        (("--profile", "turbo"), 2, "valid are baseline"),
        (("--profile", "xla+xla"), 2, "named twice"),
        (("--max-seq-length", "12"), 2, "max_seq_length 12"),
        (("--limit", "0"), 2, "at least 1"),
    ],
)
def test_what_a_user_can_cause_is_one_line(
    arguments: tuple[str, ...], code: int, says: str, tmp_path: Path
) -> None:
    done = command(*arguments, "--no-track", folder=tmp_path)
    assert done.returncode == code
    assert says in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_model_without_tokenizer(tiny_model: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    (model / "vocab.txt").unlink()
    done = command("--model", model, "--no-track", folder=tmp_path)
    assert done.returncode == 1
    assert "no tokenizer" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("file", "change", "says"),
    [
        ("config.json", lambda data: b"{", "config.json is not JSON"),
        ("model.safetensors", lambda data: data[:-100], "model.safetensors is damaged"),
        ("config.json", lambda data: data.replace(b'layers": 2', b'layers": 3'), "lacks 16 of the"),
        (
            "config.json",
            lambda data: data.replace(b'hidden_size": 8', b'hidden_size": 16'),
            "has shape",
        ),
    ],
)
def test_a_damaged_model_leaves_nothing_half_made(
    tiny_model: Path, tmp_path: Path, file: str, change: Callable[[bytes], bytes], says: str
) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    data = (model / file).read_bytes()
    (model / file).write_bytes(change(data))
    assert change(data) != data
    done = command("--model", model, "--no-track", "--limit", 3, folder=tmp_path)
    assert done.returncode == 1
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not [path for path in tmp_path.glob("runs/*") if not path.name.startswith("windows-")]


def test_without_tensorflow_one_line_says_what_to_install(tmp_path: Path) -> None:
    code = "import sys; sys.modules['tensorflow'] = None; from nq.commands.main import console; "
    done = subprocess.run(
        [sys.executable, "-c", code + "sys.exit(console(['answer', '--no-track']))"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "pip install" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_whole_line_with_sentencepiece(tmp_path: Path) -> None:
    lines = bundled_sample().read_text(encoding="utf-8").splitlines()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter({json.loads(line)["document_text"] for line in lines}),
        model_prefix=str(tmp_path / "spiece"),
        vocab_size=500,
        control_symbols=["[CLS]", "[SEP]"],
        pad_id=3,
        max_sentence_length=1 << 16,
        minloglevel=2,
    )
    tokenizer = load_tokenizer(tmp_path / "spiece.model")
    shape = ModelConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
    )
    settings = checkpoint.ModelSettings(WindowConfig(max_seq_length=128))
    folder = tmp_path / "model"
    checkpoint.save(folder, joint.build(shape, 128), shape, tokenizer, settings, "a tiny model")
    job = Job(
        (str(bundled_sample()),),
        folder,
        Profile.parse("mixed"),
        settings.windows,
        settings.decision,
        batch_size=32,
        root=tmp_path,
        limit=3,
    )
    report = run(job)
    assert (report.examples, len(answers(report))) == (3, 3)
    assert report.metrics
