"""The dual encoder: each text of a window is encoded as the sentence encoder does it alone."""

import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nq
from nq.commands.main import console
from nq.config import DecisionConfig, WindowConfig
from nq.inference.batches import Shape
from nq.inference.engine import Computation, Network
from nq.inference.predictor import Predictor
from nq.inference.profile import Profile
from nq.inference.reduction import TopK
from nq.model import checkpoint, joint
from nq.model.dual_encoder import ABSENT, MIDDLE, SCALE, KnownMarkers
from nq.model.encoder import Layers, encoder
from nq.model.folder import ModelFolder, ModelSettings
from nq.preprocess.features import features
from nq.preprocess.tokenizers.base import BLOCK_MARKERS, CONTEXT_MARKERS, Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import MODEL_INPUTS, AnswerType, Example, FloatArray, YesNo
from tests.preprocess.synthetic_examples import page
from tests.support import tiny_models

BLOCKS = ("the lake is deep", "old old lakes of the moon", "a", "is the lake old and deep " * 4)
WINDOWS = WindowConfig(max_seq_length=24, doc_stride=9, max_query_length=8)
SHAPES = {
    "bert": dataclasses.replace(tiny_models.SHAPE, initializer_range=0.4),
    "mpnet": tiny_models.MPNET,
    "deberta": tiny_models.DEBERTA,
    "modernbert": tiny_models.MODERNBERT,
}
PREFIXED = {"question_prefix": "is ", "block_prefix": "the old "}
OPTIONS = {
    "bert": ("--question-prefix", "is ", "--block-prefix", "the old "),
    "mpnet": (),
    "deberta": (),
    "modernbert": (),
}


def example() -> Example:
    """Returns an example whose page has the blocks ``BLOCKS``."""
    return page(" ".join(f"<P> {block.strip()} </P>" for block in BLOCKS), "is the lake deep")


@pytest.fixture(params=list(SHAPES))
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of a sentence encoder: no heads, random weights."""
    shape, folder = SHAPES[request.param], tmp_path / str(request.param)
    words = tiny_models.MPNET_VOCABULARY if request.param == "mpnet" else tiny_models.VOCABULARY
    vocabulary = tiny_models.write_vocab(tmp_path / "vocab.txt", words)
    model = joint.build(shape, seed=3)
    heads = {w.path for w in model.weights if w.path.startswith(("span_", "type_", "pooler"))}
    settings = ModelSettings(windows=WINDOWS)
    tokenizer = load_tokenizer(vocabulary)
    checkpoint.save(folder, model, shape, tokenizer, settings, "# Tiny\n", skip=heads)
    if OPTIONS[request.param]:
        (folder / "1_Pooling").mkdir()
        text = '{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}'
        (folder / "1_Pooling" / "config.json").write_text(text)
    return folder


@pytest.fixture
def ranker(source: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "ranker"
    options = OPTIONS[source.name]
    assert console(["convert", str(source), str(folder), "--dual-encoder", *options]) == 0
    return folder


def alone(source: Path, pieces: list[int]) -> FloatArray:
    """Returns the vector of one text: the first or the mean output of the sentence encoder."""
    config = checkpoint.with_room_for(ModelFolder(source).config, load_tokenizer(source))
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in MODEL_INPUTS}
    layers = Layers(keras.DTypePolicy("float32"), "zeros")
    model = keras.Model(inputs, encoder(config, inputs, layers))
    checkpoint.fill(model, ModelFolder(source).tensors(), config)
    ids = np.array([pieces], np.int32)
    rows = {"input_ids": ids, "input_mask": ids * 0 + 1, "segment_ids": ids * 0}
    outputs = np.asarray(model(rows))
    vector: FloatArray = outputs[0] if OPTIONS[source.name] else outputs.mean(axis=0)
    return vector


def texts(
    ids: list[int], tokenizer: Tokenizer, prefix_pieces: int
) -> Iterator[tuple[int, list[int]]]:
    """Yields the position of the first word of each text of a window, and its pieces."""
    begins = {tokenizer.marker_id(marker) for marker in BLOCK_MARKERS}
    to_cls = dict.fromkeys({*begins, tokenizer.marker_id("[Q]")}, tokenizer.cls_id)
    contexts = {tokenizer.marker_id(marker) for marker in CONTEXT_MARKERS}
    stand_for = to_cls | dict.fromkeys(contexts, tokenizer.sep_id)
    text, first, previous = list[int](), 1, -1
    for position, piece in enumerate(ids[1:], 1):
        if piece in begins or previous == tokenizer.sep_id:
            yield first, text
            text, first = [], position + (1 + prefix_pieces) * (piece in begins)
        text.append(stand_for.get(piece, piece))
        previous = piece
    yield first, text


@pytest.mark.slow
def test_each_text_is_encoded_as_by_itself(source: Path, ranker: Path) -> None:
    tokenizer, model = load_tokenizer(ranker), joint.load_model(ModelFolder(ranker)).model
    settings = ModelFolder(ranker).settings.windows
    assert settings.to_dict().items() >= (PREFIXED if OPTIONS[source.name] else {}).items()
    settings = dataclasses.replace(settings, max_seq_length=24, doc_stride=9, max_query_length=8)
    windows = features(example(), tokenizer, settings)
    rows = windows.rows
    outputs = model({name: np.asarray(rows[name], np.int32) for name in MODEL_INPUTS})
    start, end = np.asarray(outputs["start_logits"]), np.asarray(outputs["end_logits"])
    np.testing.assert_array_equal(start, end)
    for logits in np.asarray(outputs["type_logits"]):
        assert set(np.flatnonzero(logits > ABSENT)) == {AnswerType.UNKNOWN, AnswerType.LONG}
    compared = 0
    assert len(windows) > 3
    for row, n_pieces in enumerate(windows.input_mask.sum(axis=1).tolist()):
        ids = windows.input_ids[row, :n_pieces].tolist()
        (_, question), *blocks = texts(ids, tokenizer, ModelFolder(ranker).config.prefix_pieces)
        query = alone(source, question)
        assert start[row, 0] == 0
        expected = np.full(len(ids), ABSENT)
        for first, text in blocks:
            if len(text) == 1:
                continue  # a separator or a marker, without words
            mean = alone(source, text)
            cosine = mean @ query / np.linalg.norm(mean) / np.linalg.norm(query)
            if first < n_pieces:
                expected[first] = SCALE * (cosine - MIDDLE)
        words = windows.token_map[row, :n_pieces] >= 0
        np.testing.assert_allclose(start[row, :n_pieces][words], expected[words], atol=1e-4)
        compared += int(np.sum(words & (expected > ABSENT)))
    assert compared >= len(BLOCKS) + 2
    assert np.ptp(start[start > ABSENT]) > 0.5


UNKNOWN_ID, CLS_ID, SEP_ID, PARAGRAPH, CONTEXT, WORD = 1, 2, 3, 10, 25, 40
MARKED = dataclasses.replace(
    tiny_models.SHAPE,
    separator_id=SEP_ID,
    unknown_id=UNKNOWN_ID,
    first_marker_id=PARAGRAPH,
    last_marker_id=19,
    last_context_id=30,
)
words = st.lists(st.sampled_from([WORD, UNKNOWN_ID]), min_size=1, max_size=4)
blocks = st.tuples(st.booleans(), st.booleans(), words)


@given(words, st.lists(blocks, max_size=5))
def test_unknown_markers_become_known(
    question: list[int], page: list[tuple[bool, bool, list[int]]]
) -> None:
    """Of each block it is drawn whether its context and its type have a marker."""
    given, expected = ([CLS_ID, PARAGRAPH, *question, SEP_ID] for _ in range(2))
    for number, (has_context, has_type, text) in enumerate(page):
        found = has_context or has_type or number == 0
        context, kind = (30, PARAGRAPH) if found else (UNKNOWN_ID, UNKNOWN_ID)
        given += [CONTEXT if has_context else UNKNOWN_ID, 12 if has_type else UNKNOWN_ID, *text]
        expected += [CONTEXT if has_context else context, 12 if has_type else kind, *text]
    known = KnownMarkers(MARKED)(np.array([given], np.int32))
    assert np.asarray(known).tolist() == [expected]


@pytest.mark.slow
@pytest.mark.parametrize("source", ["mpnet"], indirect=True)
@pytest.mark.parametrize("profile", ["xla", "mixed+buckets+openvino", "onnx"])
def test_engines_agree(profile: str, ranker: Path) -> None:
    loaded = joint.load_model(ModelFolder(ranker))
    windows = features(example(), load_tokenizer(ranker), WINDOWS)
    rows = {name: x.astype(np.int32) for name, x in windows.rows.items()}

    def block_logits(name: str) -> dict[tuple[int, int], float]:
        """Returns the logits of blocks by window and position."""
        parsed = Profile(name)
        own = joint.build(loaded.config, dtype=parsed.policy("CPU"), initialize=False)
        own.set_weights(loaded.model.get_weights())
        computation = Computation(Network(loaded.config, own), parsed, TopK(5, True))
        columns = Predictor(computation, Shape(4, 24)).scores(rows, ())
        places, logits = columns["start_pos"], columns["start_logit"]
        found = zip(*np.nonzero(logits > ABSENT / 2), strict=True)
        return {(int(w), int(places[w, k])): float(logits[w, k]) for w, k in found}

    expected = block_logits("baseline")
    assert len(expected) > len(BLOCKS)
    assert block_logits(profile) == pytest.approx(expected, abs=0.3 if "mixed" in profile else 1e-3)


@pytest.mark.slow
def test_alone_it_gives_long_answers_only(ranker: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nq")
    advice = nq.Model.open(ranker).advice
    everything = DecisionConfig(long_threshold=0.0, short_threshold=0.0)
    with nq.load(ranker, decision=everything) as reader:
        (prediction,) = reader.predict([example()])
    assert prediction.long in {candidate.span for candidate in example().candidates}
    assert prediction.shorts == () and prediction.yes_no is YesNo.NONE
    assert prediction.short_score < 0.01
    assert str(ranker) in advice and advice in caplog.text
