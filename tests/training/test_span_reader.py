"""A reader of plain text: trained as transformers and torch do, and used by both programs."""

import json
import logging
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import nq
from experiments.peers.pipeline import vocabulary, write_model
from nq.config import WindowConfig
from nq.memo import Memo
from nq.model import joint
from nq.model.folder import ModelFolder
from nq.training.job import LOSS, TrainConfig
from nq.training.loop import TrainingState, WarmupThenDecay, fit
from nq.training.windows import TrainingWindows, steps_after, total_steps
from tests.conftest import Commands
from tests.golden.families import make
from tests.support.nq_records import Record, write_lines

FAMILIES = ("bert", "roberta", "deberta-v3")
SIZES = ("--max-seq-length", "64", "--max-query-length", "16")


def torch_steps(
    model: Any, model_type: str, windows: TrainingWindows, config: TrainConfig
) -> list[float]:
    """Trains a model of transformers by a plain loop on the same batches; returns the losses.

    The epsilon of Keras is that of TensorFlow, epsilon hat in Kingma and Ba 2014, section 2.
    """
    import torch

    groups: list[list[Any]] = [[], []]
    for name, value in model.named_parameters():
        groups["LayerNorm" in name or name.endswith("bias")].append(value)
    decays = zip(groups, (config.weight_decay, 0.0), strict=True)
    optimizer = torch.optim.AdamW(
        [{"params": group, "weight_decay": decay} for group, decay in decays]
    )
    total, losses = total_steps(len(windows), config), list[float]()
    schedule = WarmupThenDecay(config.learning_rate, int(total * config.warmup), total)
    for rows in steps_after(0, windows.n_pieces, config):
        inputs, targets = windows.batch(rows)
        given = {
            "input_ids": inputs["input_ids"],
            "attention_mask": inputs["input_mask"],
            "start_positions": targets["start_logits"],
            "end_positions": targets["end_logits"],
        }
        if model_type not in make.WITHOUT_SEGMENTS:
            given["token_type_ids"] = inputs["segment_ids"]
        loss = model(**{name: torch.from_numpy(x).long() for name, x in given.items()}).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = float(schedule(len(losses)))
            group["eps"] = 1e-6 / (1 - group["betas"][1] ** (len(losses) + 1)) ** 0.5
        optimizer.step()
        losses.append(loss.item())
    return losses


def random_windows(lengths: list[int], length: int) -> TrainingWindows:
    draw, rows = np.random.default_rng(4), make.windows(2, length, lengths)
    start = draw.integers(make.FIRST_OF_PAGE, np.array(lengths) - 1)
    end = draw.integers(start, np.array(lengths) - 1)
    types = np.where(draw.random(len(lengths)) < 0.25, 0, 3)  # some have no answer
    targets = {"start_positions": start * (types > 0), "end_positions": end * (types > 0)}
    return TrainingWindows.from_columns({**rows, **targets, "answer_types": types})


@pytest.mark.peers
@pytest.mark.extended
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore")
def test_steps_are_those_of_transformers_and_torch(family: str, tmp_path: Path) -> None:
    """In full windows: what a position of padding computes differs, where it takes part."""
    pytest.importorskip("torch")
    from transformers import AutoConfig

    shape = AutoConfig.from_pretrained(make.HERE / family)
    theirs = make.random_model(tmp_path / "model", shape, seed=1, deviation=0.2)
    windows = random_windows([make.LENGTH] * 24, make.LENGTH)
    config = TrainConfig(epochs=1, batch_size=8, learning_rate=1e-2, warmup=0.4, dropout=0, seed=2)

    reader = joint.span_reader(joint.load_model(ModelFolder(tmp_path / "model")).model)
    state = TrainingState(Memo(tmp_path))
    fit(reader, windows, config, state)
    expected = torch_steps(theirs, shape.model_type, windows, config)
    assert len(expected) == 3
    np.testing.assert_allclose(state.losses[LOSS], expected, rtol=1e-4)


# --- from records to answers ---------------------------------------------------------------------


def records(count: int, seed: int) -> list[Record]:
    """Questions whose answer follows the word "founded", of contexts of one or several windows."""
    draw = random.Random(seed)
    words = [piece for piece in vocabulary() if piece.isalpha() and piece.isascii() and piece[1:]]
    questions = list[Record]()

    def text(least: int, most: int) -> str:
        return " ".join(draw.choices(words, k=draw.randint(least, most)))

    for number in range(count):
        before, answer, behind = text(2, 20), text(1, 4), text(2, 20)
        context = f"{before} founded {answer} . {behind}"
        place = {"text": answer, "answer_start": len(before) + len(" founded ")}
        answers = [place] if number % 4 else []
        one = {"id": number, "question": text(4, 4), "context": context, "answers": answers}
        questions.append(one)
    return questions


@pytest.fixture(scope="module")
def init(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("init") / "reader")


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "dev.jsonl", records(20, 2))


@pytest.fixture
def train(init: Path, dev: Path, tmp_path: Path, commands: Commands) -> Any:
    """A command that trains a reader from the one of ``init``."""
    odd = {"question": "who founded it?", "context": "The City was founded by the Romans."}
    data = [
        *records(60, 1),
        {**odd, "id": 61, "answer": "Londinium"},  # not in the context
        {**odd, "id": 62, "answer": "yes"},
        {**odd, "id": 63},
        {**odd, "id": 64, "context": " "},
    ]
    write_lines(tmp_path / "data.jsonl", data)

    def run(output: Path, *options: object) -> Any:
        folders = ["--data", tmp_path / "data.jsonl", "--init", init, "--output", output]
        return commands.json(
            *("train", *folders, "--compat", "squad", *SIZES, "--negatives", 1),
            *("--batch-size", 8, "--no-track", *options),
        )

    return run


@pytest.mark.slow
def test_a_reader_is_trained_measured_and_tuned(
    init: Path, dev: Path, train: Any, tmp_path: Path, commands: Commands
) -> None:
    out = tmp_path / "out"
    options = ("--epochs", 4, "--learning-rate", 5e-3)
    result = train(out, *options, "--dev", dev, "--evaluate-every", 10)
    assert (result["examples"], result["dead_letters"], result["without_windows"]) == (63, 1, 3)
    folder = ModelFolder(out)
    assert folder.is_squad_reader and folder.settings.decision.rule == "squad"
    assert folder.settings.windows == WindowConfig(64, 32, 16, compat="squad")
    before, after = (load_file(path / "model.safetensors") for path in (init, out))
    assert before.keys() == after.keys()
    for name, value in before.items():
        assert value.shape == after[name].shape and not np.array_equal(value, after[name])
    config = json.loads((out / "config.json").read_bytes())
    assert config["architectures"] == ["BertForQuestionAnswering"]
    for name in ("vocab.txt", "tokenizer_config.json"):
        assert (out / name).read_bytes() == (init / name).read_bytes()

    answer = ["--data", dev, "--model", out, "--profile", "grappler+buckets"]
    run = commands.json("answer", *answer, "--no-track", "--output", tmp_path / "run")
    metrics = run["metrics"]
    for name in ("squad_f1", "squad_exact_match"):
        assert result["best"][name] == pytest.approx(metrics[name])
    (out / "nq.json").rename(tmp_path / "nq.json")
    assert ModelFolder(out).settings.windows == WindowConfig(compat="squad")
    (tmp_path / "nq.json").rename(out / "nq.json")
    commands.json("tune", *answer)
    assert ModelFolder(out).settings.decision.rule == "default"


@pytest.mark.slow
def test_its_head_is_kept_taught_and_stored_in_8_bits(
    init: Path,
    train: Any,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nq.training.fit.REPORT_S", 0.0)
    still = ("--epochs", 1, "--learning-rate", 1e-9)
    with caplog.at_level(logging.INFO):
        train(tmp_path / "out", *still, "--teacher", init, "--store", "int8")
    assert not [text for text in ("not in the checkpoint", "for types") if text in caplog.text]
    assert "hard_loss" in caplog.text
    lines = caplog.messages
    phases = ("loading TensorFlow", "training; the first step", "step 1 of ", "step 2 of ")
    places = [[line.startswith(phase) for line in lines].index(True) for phase in phases]
    assert places == sorted(places)
    stored = load_file(tmp_path / "out" / "model.safetensors").values()
    assert np.dtype(np.int8) in {value.dtype for value in stored}
    models = (joint.load_model(ModelFolder(path)).model for path in (init, tmp_path / "out"))
    one, other = (model.get_layer("span_output").get_weights() for model in models)
    np.testing.assert_allclose(one[0], other[0], atol=0.02)


@pytest.mark.peers
@pytest.mark.extended
@pytest.mark.filterwarnings("ignore")
def test_transformers_finds_the_spans_of_the_pipeline(train: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    train(tmp_path / "out", "--epochs", 4, "--learning-rate", 5e-3)
    questions = [one for one in records(40, 3) if len(one["context"].split()) < 30]
    with nq.pipeline("question-answering", tmp_path / "out") as pipeline:
        asked, contexts = ([one[name] for one in questions] for name in ("question", "context"))
        given = pipeline(asked, contexts, align_to_words=False)
    expected = [*spans_of_transformers(tmp_path / "out", questions)]
    assert [(one["start"], one["end"]) for one in given] == expected
    assert len(set(expected)) > 5


def spans_of_transformers(folder: Path, questions: list[Record]) -> Iterator[tuple[int, int]]:
    """Yields the most probable span of at most 15 pieces, in characters of the context."""
    import torch
    from transformers import AutoModelForQuestionAnswering, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForQuestionAnswering.from_pretrained(folder).eval()
    for one in questions:
        encoded = tokenizer(
            *(one["question"], one["context"]), return_offsets_mapping=True, return_tensors="pt"
        )
        inside = [i for i, part in enumerate(encoded.sequence_ids(0)) if part == 1]
        chars = encoded.pop("offset_mapping")[0].tolist()
        with torch.no_grad():
            logits = model(**encoded)
        start, end = logits.start_logits[0].numpy(), logits.end_logits[0].numpy()
        pairs = ((i, j) for i in inside for j in inside if i <= j < i + 15)
        first, last = max(pairs, key=lambda pair: start[pair[0]] + end[pair[1]])
        yield chars[first][0], chars[last][1]
