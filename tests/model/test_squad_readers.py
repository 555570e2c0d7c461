"""A reader of SQuAD sees plain text and answers by the best span, as a plain computation does."""

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nq
from experiments.peers.pipeline import LONG, vocabulary, write_model
from nq.config import WindowConfig
from nq.model import joint
from nq.model.folder import ModelFolder
from nq.preprocess.features import features
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer
from tests.conftest import Commands

pytestmark = pytest.mark.slow
MAX_PIECES = 30
WORD = re.compile(r"\w+|[^\w\s]")


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("squad") / "reader")


@pytest.fixture(scope="module")
def questions() -> dict[str, tuple[str, str]]:
    """Questions with their contexts, of a few words to several windows, by id."""
    draw = random.Random(3)
    words = [piece for piece in vocabulary() if piece.isalpha() and piece.isascii() and piece[1:]]

    def text(count: int) -> str:
        ends = draw.choices(["", "", "", ",", " (80 km)", ".", "; it"], k=count)
        return " ".join(map(str.__add__, draw.choices(words, k=count), ends))

    sizes = (1, 5, 40, 300, 900)
    pairs = [(text(draw.randint(2, 12)), text(size)) for size in sizes for _ in range(4)]
    return {str(n): pair for n, pair in enumerate([*pairs, ("where is the City?", LONG.strip())])}


def squad_file(path: Path, questions: dict[str, tuple[str, str]]) -> Path:
    paragraphs = [
        {"context": context, "qas": [{"id": key, "question": question, "answers": []}]}
        for key, (question, context) in questions.items()
    ]
    path.write_text(json.dumps({"version": "v2.0", "data": [{"paragraphs": paragraphs}]}))
    return path


@pytest.fixture(scope="module")
def expected(reader: Path, questions: dict[str, tuple[str, str]]) -> dict[str, tuple[str, float]]:
    files = ModelFolder(reader)
    parts = files.settings.windows, load_tokenizer(reader), joint.load_model(files).model
    return {key: reference(*parts, *pair) for key, pair in questions.items()}


def reference(
    settings: WindowConfig, tokenizer: Tokenizer, model: Any, question: str, context: str
) -> tuple[str, float]:
    """Returns the best span in whole words, and the sum of its logits less that of [CLS]."""
    pieces, asked = tokenizer.encode_text(context), tokenizer.encode_text(question).ids
    room = settings.max_seq_length - len(asked) - 3
    best, null = (-np.inf, 0, 0), np.inf
    for first in range(0, max(1, len(pieces.ids)), settings.doc_stride):
        inside = list(pieces.ids[first : first + room])
        ids = [tokenizer.cls_id, *asked, tokenizer.sep_id, *inside, tokenizer.sep_id]
        segments = [0] * (len(asked) + 2) + [1] * (len(inside) + 1)
        batch = {"input_ids": ids, "input_mask": [1] * len(ids), "segment_ids": segments}
        logits = model({name: np.array([row], np.int32) for name, row in batch.items()})
        start, end = (np.asarray(logits[f"{name}_logits"])[0] for name in ("start", "end"))
        null = min(null, start[0] + end[0])
        offset = len(asked) + 2
        for i in range(len(inside)):
            for j in range(i, min(i + MAX_PIECES, len(inside))):
                score = start[offset + i] + end[offset + j]
                best = max(best, (score, -(first + i), -(first + j)))
        if first + room >= len(pieces.ids):
            break
    score, i, j = best
    words = [match.span() for match in WORD.finditer(context)]
    begin = max(a for a, _ in words if a <= pieces.chars[-i, 0])
    behind = min(b for _, b in words if b >= pieces.chars[-j, 1])
    return context[begin:behind], float(score - null)


@pytest.mark.parametrize("profile", ["baseline", "buckets+openvino"])
def test_spans_are_those_of_a_plain_computation(
    profile: str,
    reader: Path,
    questions: dict[str, tuple[str, str]],
    expected: dict[str, tuple[str, float]],
    tmp_path: Path,
    commands: Commands,
) -> None:
    data = squad_file(tmp_path / "dev.json", questions)
    output = tmp_path / "run"
    options = ["--data", data, "--model", reader, "--output", output, "--profile", profile]
    commands.out("answer", *options, "--formats", "squad", "--no-track")
    given = json.loads((output / "squad.json").read_bytes())
    assert given.keys() == expected.keys()
    answered = 0
    for key, (text, score) in expected.items():
        if abs(score) > 1e-3:
            assert given[key] == (text if score > 0 else ""), (key, score)
            answered += score > 0
    assert answered > 0


def test_a_question_is_answered_with_a_score(
    reader: Path, tmp_path: Path, commands: Commands
) -> None:
    page = tmp_path / "lake.txt"
    page.write_text("The lake is deep.\n\nIt was founded in Paris by the Romans.")
    answer: Any = commands.json("ask", "where was it founded?", page, "--model", reader)
    assert answer["short_probability"] is answer["long_probability"] is None
    assert isinstance(answer["score"], float)
    text = commands.out("ask", "where was it founded?", page, "--model", reader)
    assert "%" not in text and (f"(score {answer['score']:.1f})" in text) == (answer["score"] > 0)


def test_windows_of_blocks_and_of_the_page_have_all_words(reader: Path, tmp_path: Path) -> None:
    page = nq.page_from_text("The lake is deep.\n\nIt was founded (1874) in Paris.")
    example, tokenizer = page.with_question("how deep?"), load_tokenizer(reader)
    settings = ModelFolder(reader).settings.windows
    for scope, windows in (("page", 1), ("block", 2)):
        made = features(example, tokenizer, replace(settings, window_scope=scope))
        assert len(made) == windows
        words = {i for i, tag in enumerate(example.is_html) if not tag}
        assert set(made.token_map[made.token_map >= 0].tolist()) == words
    empty = features(nq.page_from_text("x").with_question("?"), tokenizer, settings)
    assert len(empty) == 1
