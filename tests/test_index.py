"""Documents ranked by words and vectors: what is kept of them, and when it is made again."""

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nq
from nq import index as index_module
from nq.answers import Page
from nq.collection import COSINE, select_page
from nq.index import BlockIndex, Document
from nq.inference.load import ScorerSpec, load_scorer, vector_scorer
from nq.inference.profile import Profile
from nq.inference.vector_file import VectorFile, vector_folder
from nq.inference.vectors import ABSENT, MIDDLE, SCALE, VectorScorer
from nq.model.model import Model, ModelPart
from nq.postprocess.blocks import Blocks, bm25
from nq.preprocess.features import features
from tests.conftest import Commands
from tests.support.nq_records import write_lines

TEXTS = (
    "the lake is deep\n\nold old lakes of the moon\n\na",
    "is the lake old and deep " * 6,
    "the old tower\n\nthe lake is deep\n\nlake",
)
paragraphs = st.lists(st.sampled_from(["lake", "old", "deep", "moon"]), min_size=1, max_size=30)
documents = st.lists(st.lists(paragraphs, min_size=1, max_size=4), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def ranker(tiny_ranker: Path) -> ModelPart:
    return Model.open(tiny_ranker).reader


@pytest.fixture(scope="module")
def known(ranker: ModelPart) -> list[Document]:
    """The documents with these texts."""
    return [Document.of(page.example, ranker) for page in pages()]


@pytest.fixture
def options(tiny_model: Path, tiny_ranker: Path) -> list[str]:
    return ["--model", str(tiny_model), "--ranker", str(tiny_ranker), "--profile", "openvino"]


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for vectors."""
    monkeypatch.setattr("nq.inference.load.vector_folder", lambda: tmp_path / "vectors")
    return tmp_path / "vectors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of documents."""
    (tmp_path / "documents").mkdir()
    for number, text in enumerate(TEXTS):
        (tmp_path / "documents" / f"{number}.txt").write_text(text)
    return tmp_path / "documents"


def scorer(tiny_ranker: Path, keeps: bool = True) -> VectorScorer:
    model = Model.open(tiny_ranker)
    spec = ScorerSpec(model, Profile("openvino"), 4, adaptive=True, keeps_vectors=keeps)
    found = vector_scorer(load_scorer(spec))
    assert found is not None
    return found


def index_of(tiny_ranker: Path, is_wanted: bool = True) -> BlockIndex:
    ranker = Model.open(tiny_ranker).reader
    return BlockIndex(scorer(tiny_ranker), ranker, contextlib.nullcontext(), is_wanted)


def pages(texts: Sequence[str] = TEXTS) -> list[Page]:
    return [nq.page_from_text(text) for text in texts]


def selected(question: str, index: BlockIndex) -> Page:
    """Returns the page of the best block."""
    windows = nq.WindowConfig(max_contexts=2)
    return select_page(question, pages(), lambda page: page, windows, index=index)


@given(documents)
def test_a_document_is_what_its_page_has(ranker: ModelPart, parts: list[list[list[str]]]) -> None:
    (page,) = pages(["\n\n".join(map(" ".join, parts[0]))])
    document = Document.of(page.example, ranker)
    np.testing.assert_equal(vars(Document.decoded(document.encoded())), vars(document))
    assert [words.split(" ") for words in document.words] == parts[0]
    assert [page.text(span) for span in document.blocks] == list(map(" ".join, parts[0]))
    pieces = [list[int]() for _ in parts[0]]
    for block, text in zip(document.block, document.texts, strict=True):
        pieces[block] += text.tolist()[1:-1]
    tokenizer = ranker.tokenizer
    assert pieces == [[p for word in tokenizer.encode(block) for p in word] for block in parts[0]]


def test_cosines_are_those_of_the_ranker(
    tiny_ranker: Path, ranker: ModelPart, known: list[Document]
) -> None:
    """Against the logits of the windows of each page; the best text of a block counts."""
    question = "is the old lake deep"
    computed = scorer(tiny_ranker, keeps=False)
    expected = list[float]()
    for page in pages():
        example = page.with_question(question)
        rows = features(example, ranker.tokenizer, ranker.windows).rows
        columns = computed.scores(rows)
        of_token = Blocks.of(example).of_token
        is_text = (columns["start_doc"] >= 0) & (columns["start_logit"] > ABSENT)
        block = of_token[columns["start_doc"][is_text]]
        logits = columns["start_logit"][is_text]
        expected += [logits[block == one].max() / SCALE + MIDDLE for one in np.unique(block)]
    found = index_of(tiny_ranker).cosines(question, known)
    assert found is not None
    np.testing.assert_allclose(found, np.array(expected), atol=1e-5)


def test_a_known_file_is_not_read_again(tiny_ranker: Path, folder: Path) -> None:
    reads = list[Path]()

    def read(path: Path) -> Page:
        reads.append(path)
        return nq.read_page(path)

    paths = sorted(folder.iterdir())
    first = index_of(tiny_ranker)

    def best(index: BlockIndex, question: str = "is the lake deep") -> Page:
        reads.clear()
        windows = Model.open(tiny_ranker).windows
        return select_page(question, paths, read, windows, index=index)

    def encoded(index: BlockIndex) -> int:
        return index._scorer.encoder.counters.computed_windows

    expected = best(first)
    assert reads[:3] == paths and encoded(first) > 5
    later = index_of(tiny_ranker)
    assert best(later) == expected
    assert reads == paths and encoded(later) == 0  # of each the best blocks
    best(later, "the moon")
    assert encoded(later) == 1  # the question
    paths[0].write_text("the tower of the moon")
    changed = index_of(tiny_ranker)
    assert best(changed) != expected
    assert reads.count(paths[0]) == 2 and encoded(changed) == 1


def test_words_and_vectors_rank_together(tiny_ranker: Path, known: list[Document]) -> None:
    index = index_of(tiny_ranker)
    words = [text.split(" ") for one in known for text in one.words]
    question = "the old moon"
    cosines = index.cosines(question, known)
    assert cosines is not None
    scores = bm25(question, words) + COSINE * cosines
    number = [n for n, one in enumerate(known) for _ in one.blocks]
    of_document = [max(s for s, m in zip(scores, number, strict=True) if m == n) for n in number]
    best = int(np.argmax(scores + of_document))
    read = selected(question, index)
    (candidate,) = read.example.candidates
    assert read.text(candidate.span).lower() == " ".join(words[best])


def test_an_index_that_takes_long_is_made_only_if_wanted(
    tiny_ranker: Path,
    known: list[Document],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO, "nq.index")
    for name, value in (("TRIAL_S", 0.0), ("PATIENCE_S", 0.0), ("CHUNK", 2)):
        monkeypatch.setattr(index_module, name, value)
    impatient = index_of(tiny_ranker, is_wanted=False)
    assert impatient.cosines("the lake", known) is None
    assert selected("the moon", impatient).example.candidates
    (message,) = caplog.messages
    assert "--index" in message
    done = list[int]()
    wanted = index_of(tiny_ranker)
    assert wanted.cosines("the lake", known, lambda new, total: done.append(new)) is not None
    assert done[0] == 0 < sum(done)
    assert index_of(tiny_ranker, is_wanted=False).cosines("the lake", known) is not None


def test_a_folder_is_asked_again(
    tiny_model: Path, options: list[str], folder: Path, caches: Path, commands: Commands
) -> None:
    question = ["ask", "is the lake deep", folder, *options, "--json"]
    first = commands.json(*question)
    (path,) = caches.iterdir()
    assert commands.json(*question) == first
    path.write_bytes(path.read_bytes()[:5000])
    assert commands.json(*question) == first
    assert commands.err.count("made again") == 1
    error = commands.error("ask", "a question", folder, "--index", "--model", tiny_model, code=2)
    assert "--index is for a dual encoder" in error


def test_the_vectors_of_named_pages_are_kept(
    options: list[str], folder: Path, caches: Path, commands: Commands
) -> None:
    questions = folder.parent / "questions.jsonl"
    write_lines(
        questions,
        [{"question": "is the lake deep", "page": path.name} for path in folder.iterdir()],
    )
    data = ("--data", questions, "--pages", folder, "--no-track", "--json")
    outputs = [folder.parent / name for name in ("first", "second")]
    for output in outputs:
        commands.json("answer", *data, *options, "--output", output)
        assert len(list(caches.iterdir())) == 1
    first, second = ((output / "predictions.json").read_bytes() for output in outputs)
    assert first == second


def test_clean_removes_vectors(
    tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    path = vector_folder() / "a.sqlite"
    VectorFile(path).add({b"key": b"value"})
    assert "vectors of documents" in commands.out("clean", "--dry-run")
    assert path.exists()
    commands.out("clean")
    assert not path.parent.exists()
