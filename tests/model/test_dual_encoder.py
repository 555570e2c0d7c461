"""The dual encoder: each text of a window is encoded as the sentence encoder does it alone."""

import dataclasses
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nq
from nq.commands.main import console
from nq.config import DecisionConfig, WindowConfig
from nq.inference.load import ScorerSpec, load_scorer
from nq.inference.profile import Profile
from nq.inference.prune import PRIOR, PruningScorer
from nq.inference.scorer import concatenate
from nq.inference.vectors import (
    ABSENT,
    ENTRY_BYTES,
    MIDDLE,
    SCALE,
    Texts,
    VectorScorer,
    VectorStore,
    text_key,
    text_rows,
)
from nq.model import checkpoint, joint
from nq.model.encoder import Layers, encoder
from nq.model.folder import ModelFolder, ModelSettings
from nq.postprocess.blocks import Blocks
from nq.preprocess.features import features
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.records import (
    MODEL_INPUTS,
    VECTORS,
    AnswerType,
    Columns,
    Example,
    FloatArray,
    IntArray,
    YesNo,
)
from tests.preprocess.synthetic_examples import page
from tests.support import tiny_models

BLOCKS = ("the lake is deep", "old old lakes of the moon", "a", "is the lake old and deep " * 4)
WINDOWS = WindowConfig(max_seq_length=32, max_query_length=8)
ROUNDING = SCALE * 2**-10
"""What the rounding of two vectors to float16 changes in a logit at most."""
SHAPES = {
    "bert": dataclasses.replace(tiny_models.SHAPE, initializer_range=0.4),
    "mpnet": tiny_models.MPNET,
    "deberta": tiny_models.DEBERTA,
    "modernbert": tiny_models.MODERNBERT,
}
PREFIXED = {"question_prefix": "is ", "block_prefix": "the old "}
OPTIONS = {
    **dict.fromkeys(SHAPES, ()),
    "bert": ("--question-prefix", "is ", "--block-prefix", "the old "),
}


def example(question: str = "is the lake deep", blocks: Sequence[str] = BLOCKS) -> Example:
    """Returns an example whose page has these blocks."""
    return page(" ".join(f"<P> {block.strip()} </P>" for block in blocks), question)


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


def sentence_encoder(source: Path) -> Callable[[IntArray], FloatArray]:
    """Returns what makes the vector of one text: its first or mean output, of length 1."""
    config = checkpoint.with_room_for(ModelFolder(source).config, load_tokenizer(source))
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in MODEL_INPUTS}
    layers = Layers(keras.DTypePolicy("float32"), "zeros")
    model = keras.Model(inputs, encoder(config, inputs, layers))
    checkpoint.fill(model, ModelFolder(source).tensors(), config)

    def encode(pieces: IntArray) -> FloatArray:
        rows = text_rows([pieces])
        outputs = np.asarray(model({name: rows[name] for name in inputs}))
        vector: FloatArray = outputs[0] if OPTIONS[source.name] else outputs.mean(axis=0)
        return vector / np.linalg.norm(vector)

    return encode


def loaded(ranker: Path, profile: str = "openvino") -> VectorScorer:
    """Loads the dual encoder as a scorer."""
    scorer = load_scorer(ScorerSpec(nq.Model.open(ranker), Profile(profile), 4))
    assert isinstance(scorer, VectorScorer)
    return scorer


def window_rows(ranker: Path, *examples: Example) -> Columns:
    """Returns the windows of examples one after the other."""
    model = nq.Model.open(ranker)
    return concatenate([features(one, model.tokenizer, model.windows).rows for one in examples])


def pieces_of(rows: Columns, row: int, cls_id: int) -> dict[int, IntArray]:
    """Returns the texts of a window by the position of their first word; 0 is the question."""
    ids = rows["input_ids"][row, : rows["input_mask"][row].sum()]
    is_word = rows["token_map"][row] >= 0
    starts = np.flatnonzero(ids == cls_id).tolist()
    texts = np.split(ids, starts[1:])
    return {
        a + int(is_word[a : a + len(text)].argmax()): text
        for a, text in zip(starts, texts, strict=True)
    }


@pytest.mark.slow
def test_each_text_is_encoded_as_by_itself(source: Path, ranker: Path) -> None:
    tokenizer = load_tokenizer(ranker)
    windows = ModelFolder(ranker).settings.windows
    assert windows.to_dict().items() >= (PREFIXED if OPTIONS[source.name] else {}).items()
    alone = sentence_encoder(source)
    rows = window_rows(ranker, example())
    columns = loaded(ranker, "baseline").scores(rows)
    np.testing.assert_array_equal(columns["start_logit"], columns["end_logit"])
    assert not columns["cls_logit"].any()
    for logits in columns["type_logits"]:
        assert set(np.flatnonzero(logits > ABSENT)) == {AnswerType.UNKNOWN, AnswerType.LONG}
    n_blocks = 0
    for row in range(len(rows["input_ids"])):
        blocks = pieces_of(rows, row, tokenizer.cls_id)
        question = alone(blocks.pop(0))
        places = zip(columns["start_pos"][row], columns["start_logit"][row], strict=True)
        found = {int(place): logit for place, logit in places if logit > ABSENT}
        assert found.keys() == blocks.keys()
        for first, text in blocks.items():
            expected = SCALE * (alone(text) @ question - MIDDLE)
            assert found[first] == pytest.approx(expected, abs=ROUNDING)
        n_blocks += len(blocks)
    assert n_blocks > len(BLOCKS)  # a long one is divided


ENGINES = [("mixed+xla", "mpnet"), ("onnx", "mpnet"), *(("openvino", name) for name in SHAPES)]


@pytest.mark.slow
@pytest.mark.parametrize(("profile", "source"), ENGINES, indirect=["source"])
def test_engines_agree(profile: str, ranker: Path) -> None:
    rows = window_rows(ranker, example())
    texts = text_rows(Texts.of(rows, nq.Model.open(ranker).tokenizer.cls_id).pieces)
    expected, found = (
        loaded(ranker, name).encoder.scores(texts)[VECTORS] for name in ("baseline", profile)
    )
    np.testing.assert_allclose(found, expected, atol=0.02 if "mixed" in profile else 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["bert"], indirect=True)
def test_a_text_is_encoded_once(ranker: Path) -> None:
    """Vectors depend on their text alone: scores are the same in any company, known or new."""
    scorer = loaded(ranker)
    asked = example("is it old"), example(), example("is it old", BLOCKS[:2]), example("a moon")
    apart = [loaded(ranker).scores(window_rows(ranker, one)) for one in asked]
    encoded = list[int]()
    for one, expected in zip(asked, apart, strict=True):
        before = scorer.encoder.counters.computed_windows
        np.testing.assert_equal(scorer.scores(window_rows(ranker, one)), expected)
        encoded.append(scorer.encoder.counters.computed_windows - before)
    assert encoded[0] > len(BLOCKS)
    assert encoded[1:] == [1, 0, 1]  # the question, if it is new
    together = loaded(ranker)
    columns = together.scores(window_rows(ranker, *asked))
    assert together.encoder.counters.computed_windows == sum(encoded)
    np.testing.assert_equal(columns, concatenate(apart))
    assert together.counters.computed_windows == len(columns["start_pos"])


@pytest.mark.slow
@pytest.mark.parametrize("source", ["bert"], indirect=True)
@pytest.mark.parametrize("n_blocks", [1, 2, 9])
def test_prune_encodes_the_texts_of_the_best_blocks(n_blocks: int, ranker: Path) -> None:
    asked = example("is the lake old")
    decision = DecisionConfig(prune_blocks=n_blocks)
    rows = window_rows(ranker, asked)
    blocks = Blocks.of(asked)
    best = blocks.candidates[np.argsort(-blocks.prior(PRIOR), kind="stable")[:n_blocks]]

    def block_logits(columns: Columns) -> dict[int, float]:
        """Returns the logits of texts by their first token."""
        found = (columns["start_logit"] > ABSENT) & (columns["start_doc"] >= 0)
        tokens = columns["start_doc"][found].tolist()
        return dict(zip(tokens, columns["start_logit"][found].tolist(), strict=True))

    whole = block_logits(loaded(ranker).scores(rows))
    expected = {token: x for token, x in whole.items() if blocks.of_token[token] in best}
    scorer = loaded(ranker)
    cls_id = nq.Model.open(ranker).tokenizer.cls_id
    pruned = PruningScorer(scorer, decision, cls_id).scores(rows, [asked])
    assert block_logits(pruned) == expected
    tokens = pruned["start_doc"][pruned["start_doc"] >= 0]
    assert set(blocks.of_token[tokens]) <= set(best)  # nothing is said of other blocks
    assert scorer.encoder.counters.computed_windows == 1 + len(expected)


keys = st.lists(st.integers(0, 12), max_size=6)


@given(st.lists(keys, max_size=8), st.integers(0, 6))
def test_the_vectors_used_last_stay(calls: list[list[int]], most: int) -> None:
    """Against a list of keys, of which the last ``most`` are those that stay."""
    vector = np.zeros(8, np.float16)
    one = VectorStore(limit_bytes=most * (vector.nbytes + ENTRY_BYTES))
    used = list[bytes]()
    for numbers in calls:
        wanted = list(dict.fromkeys(text_key(np.array([n], np.int32)) for n in numbers))
        found = one.find(wanted)
        assert [*found] == [key for key in wanted if key in used]
        one.add({key: vector for key in wanted if key not in found})
        old = [key for key in wanted if key in found]
        new = [key for key in wanted if key not in found]
        used = [key for key in used if key not in wanted] + old + new
        used = used[len(used) - most :] if len(used) > most else used


@pytest.mark.parametrize("source", ["bert"], indirect=True)
def test_windows_of_texts_are_for_dual_encoders(source: Path, ranker: Path) -> None:
    settings = ModelFolder(ranker).settings.windows
    shorter = dataclasses.replace(WINDOWS, max_seq_length=24)
    assert nq.Model.open(ranker, windows=shorter).windows == dataclasses.replace(
        settings, max_seq_length=24, doc_stride=shorter.doc_stride
    )
    with pytest.raises(ValueError, match="is for a dual encoder"):
        nq.Model.open(source, windows=settings)
    with pytest.raises(ValueError, match="compat squad reads question and page together"):
        dataclasses.replace(settings, compat="squad")


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
