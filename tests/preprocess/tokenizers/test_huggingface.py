"""Tokenizers of Hugging Face folders: byte-level BPE, unigram, WordPiece; XLM-RoBERTa, ALBERT."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from nq.config import WindowConfig
from nq.preprocess.features import features
from nq.preprocess.tokenizers.base import MARKERS, Tokenizer
from nq.preprocess.tokenizers.huggingface import LibraryTokenizer
from nq.preprocess.tokenizers.load import load_tokenizer, tokenizer_digest
from nq.preprocess.tokenizers.sentencepiece import SentencePieceTokenizer
from nq.preprocess.tokenizers.wordpiece import OriginalWordPieceTokenizer, WordPieceTokenizer
from nq.records import Candidate, Example, Span
from tests.preprocess.synthetic_examples import any_words, few

TEXT = [
    "The old bridge over the river is made of ice , isn't it ?",
    "Who walked 1,969 miles along Øresund in 2019 — and why?",
    "東京の川 は 深い。 Ünïcödé straße ﬁne ½ «quoted» e.g. U.S. [...] <b> 3.14%",
] * 30
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
KINDS = ("byte-level", "byte-level-json", "unigram", "wordpiece")
PAGES = [*TEXT[:3], "a  b\u00a0c x<s>y </s> [SEP] 'll can't ... \U0001f600\U0001f600 naïve"]


def byte_level(folder: Path) -> Library:
    made = Library(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(
        TEXT,
        trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=ROBERTA,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return made


def unigram(folder: Path) -> Library:
    made = Library(models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    trainer = trainers.UnigramTrainer(
        vocab_size=150, special_tokens=ROBERTA, unk_token="<unk>", show_progress=False
    )
    made.train_from_iterator(TEXT, trainer)
    pair = "<s> $A </s> </s> $B </s>"
    made.post_processor = processors.TemplateProcessing(
        "<s> $A </s>", pair, [("<s>", 0), ("</s>", 2)]
    )
    return made


def wordpiece(folder: Path) -> Library:
    made = Library(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=False)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(
        TEXT, trainers.WordPieceTrainer(vocab_size=200, special_tokens=BERT, show_progress=False)
    )
    return made


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each kind, with the library's own tokenizer.json beside it as whole.json."""
    root = tmp_path_factory.mktemp("library")
    for kind in KINDS:
        folder = root / kind
        folder.mkdir()
        maker = {"unigram": unigram, "wordpiece": wordpiece}.get(kind, byte_level)
        made = maker(folder)
        made.save(str(folder / "whole.json"))
        if kind == "byte-level":
            made.model.save(str(folder))
        else:
            shutil.copyfile(folder / "whole.json", folder / "tokenizer.json")
    return {kind: root / kind for kind in KINDS}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def whole(folder: Path) -> Library:
    """The library's tokenizer without special pieces in text, a blank before the first word."""
    values = json.loads((folder / "whole.json").read_bytes()) | {"added_tokens": []}
    values["post_processor"] = None
    if values["pre_tokenizer"]["type"] == "ByteLevel":
        values["pre_tokenizer"]["add_prefix_space"] = True
    return Library.from_str(json.dumps(values))


def test_the_kind_follows_from_the_files(folders: dict[str, Path]) -> None:
    types = {kind: type(load_tokenizer(folder)) for kind, folder in folders.items()}
    assert types.pop("wordpiece") is WordPieceTokenizer
    assert set(types.values()) == {LibraryTokenizer}
    assert set(load_tokenizer(folders["byte-level"]).files) == {"vocab.json", "merges.txt"}
    assert set(load_tokenizer(folders["unigram"]).files) == {"tokenizer.json"}
    assert type(load_tokenizer(folders["wordpiece"], "kisialiou")) is OriginalWordPieceTokenizer
    with pytest.raises(ValueError, match="compat 'kisialiou' is for WordPiece only"):
        load_tokenizer(folders["unigram"], "kisialiou")


def test_word_by_word_is_the_whole_page(folders: dict[str, Path], kind: str) -> None:
    tokenizer, library = load_tokenizer(folders[kind]), whole(folders[kind])
    for page in TEXT[:3]:
        pieces = list(itertools.chain.from_iterable(tokenizer.encode(page.split(" "))))
        assert pieces == library.encode(page, add_special_tokens=False).ids


def test_a_wordpiece_json_says_how_long_words_may_be(folders: dict[str, Path]) -> None:
    tokenizer = load_tokenizer(folders["wordpiece"])
    short, long = tokenizer.encode(["i" * 100, "i" * 101])
    assert (len(short) > 1, long) == (True, (tokenizer.unk_id,))


def rewritten(folder: Path, new: Path, **values: Any) -> Path:
    """The folder's tokenizer.json with other values."""
    changed = json.loads((folder / "tokenizer.json").read_bytes()) | values
    (new / "tokenizer.json").write_text(json.dumps(changed), encoding="utf-8")
    return new


@pytest.mark.parametrize(
    ("normalizer", "pre_tokenizer"),
    [
        (normalizers.BertNormalizer(lowercase=True, strip_accents=False), None),
        (normalizers.BertNormalizer(lowercase=False, strip_accents=True), None),
        (normalizers.BertNormalizer(lowercase=False, handle_chinese_chars=False), None),
        (normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]), None),
        (normalizers.Lowercase(), pre_tokenizers.WhitespaceSplit()),
    ],
)
def test_a_wordpiece_json_says_how_text_is_prepared(
    folders: dict[str, Path], tmp_path: Path, normalizer: Any, pre_tokenizer: Any
) -> None:
    made = Library.from_file(str(folders["wordpiece"] / "tokenizer.json"))
    made.normalizer = normalizer
    made.pre_tokenizer = pre_tokenizer or pre_tokenizers.BertPreTokenizer()
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    for page in TEXT[:3]:
        pieces = list(itertools.chain.from_iterable(tokenizer.encode(page.split(" "))))
        assert pieces == made.encode(page, add_special_tokens=False).ids


def test_an_older_wordpiece_json_does_not_say_its_kind(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    model = json.loads((folders["wordpiece"] / "tokenizer.json").read_bytes())["model"]
    del model["type"]
    rewritten(folders["wordpiece"], tmp_path, model=model)
    assert type(load_tokenizer(tmp_path)) is WordPieceTokenizer


def test_pieces_that_were_added_to_a_wordpiece_json_have_their_ids(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    made = Library.from_file(str(folders["wordpiece"] / "tokenizer.json"))
    size = made.get_vocab_size()
    made.add_special_tokens([*MARKERS])
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    assert (tokenizer.pieces, tokenizer.vocab_size) == (size + len(MARKERS),) * 2
    assert [tokenizer.marker_id(marker) for marker in MARKERS] == [
        *range(size, size + len(MARKERS))
    ]
    assert special_ids(tokenizer).isdisjoint(tokenizer.encode(["[Q]"])[0])


def test_a_template_for_one_text_alone_has_the_usual_separators(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    one = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    made = Library.from_file(str(folders["unigram"] / "tokenizer.json"))
    made.post_processor = one
    made.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    assert (tokenizer.separators, tokenizer.segments) == (2, False)


def test_the_two_files_and_the_one_are_the_same_tokenizer(folders: dict[str, Path]) -> None:
    two, one = load_tokenizer(folders["byte-level"]), load_tokenizer(folders["byte-level-json"])
    words = " ".join(PAGES).split(" ")
    assert two.encode(words) == one.encode(words)
    for name in ("cls_id", "sep_id", "pad_id", "unk_id", "pieces", "vocab_size", "separators"):
        assert getattr(two, name) == getattr(one, name)
    assert tokenizer_digest(two) != tokenizer_digest(one)


def special_ids(tokenizer: Tokenizer) -> set[int]:
    spelled = (tokenizer.piece_id(piece) for piece in (*ROBERTA, *BERT))
    meant = {i for i in spelled if i is not None and i != tokenizer.unk_id}
    return meant | {tokenizer.marker_id(marker) for marker in MARKERS}


@few
@given(
    parts=st.lists(st.one_of(any_words, st.sampled_from([*ROBERTA, *BERT, *MARKERS])), max_size=3)
)
def test_no_text_becomes_a_special_piece(folders: dict[str, Path], parts: list[str]) -> None:
    for folder in folders.values():
        tokenizer = load_tokenizer(folder)
        (pieces,) = tokenizer.encode(["".join(parts)])
        assert special_ids(tokenizer).isdisjoint(pieces)


@pytest.mark.parametrize("word", ["", " ", "\t", "\u00a0"])
def test_a_blank_word_has_no_pieces(folders: dict[str, Path], kind: str, word: str) -> None:
    assert load_tokenizer(folders[kind]).encode([word, "ice"])[0] == ()


def test_markers_follow_the_last_piece(folders: dict[str, Path], kind: str) -> None:
    tokenizer = load_tokenizer(folders[kind])
    assert tokenizer.vocab_size == tokenizer.pieces + len(MARKERS)
    assert tokenizer.marker_id(MARKERS[0]) == tokenizer.pieces


def example(question: str, text: str) -> Example:
    tokens = ("<P>", *text.split(" "), "</P>")
    html = tuple(t in ("<P>", "</P>") for t in tokens)
    return Example(
        example_id=1,
        question=question,
        tokens=tokens,
        is_html=html,
        candidates=(Candidate(Span(0, len(tokens)), True),),
    )


def test_a_robertas_features_have_its_layout(folders: dict[str, Path], kind: str) -> None:
    tokenizer = load_tokenizer(folders[kind])
    config = WindowConfig(max_seq_length=40, max_query_length=16, doc_stride=8)
    found = features(example("who walked", TEXT[0]), tokenizer, config)
    query = [tokenizer.marker_id("[Q]"), *itertools.chain(*tokenizer.encode(["who", "walked"]))]
    double = kind != "wordpiece"
    start = [tokenizer.cls_id, *query, *[tokenizer.sep_id] * (1 + double)]
    for ids, mask, segments, doc in zip(
        found.input_ids, found.input_mask, found.segment_ids, found.token_map, strict=True
    ):
        assert ids[: len(start)].tolist() == start
        assert ids[mask > 0][-1] == tokenizer.sep_id
        assert (ids[mask == 0] == tokenizer.pad_id).all()
        assert (doc[: len(start)] == -1).all()
        assert segments.any() == (not double)
    assert (np.unique(found.token_map)[1:] == np.arange(1, 15)).all()


def test_a_window_without_room_for_the_page_is_refused(folders: dict[str, Path]) -> None:
    config = WindowConfig(max_seq_length=11, max_query_length=7)
    page = example("who walked along the river", TEXT[0])
    with pytest.raises(ValueError, match="max_seq_length 11 leaves no room for the page behind"):
        features(page, load_tokenizer(folders["unigram"]), config)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("tokenizer.json", "{", "is not a tokenizer.json"),
        ("tokenizer.json", "[]", "is not a tokenizer.json"),
        ("tokenizer.json", '{"model": {"type": "BPE", "vocab": 3}}', "is not a tokenizer.json"),
        ("tokenizer.json", '{"model": {"type": "Odd", "vocab": {}}}', "is not a tokenizer.json"),
        ("tokenizer.json", '{"model": {"type": "WordPiece", "vocab": {"a": 0}}}', r"lacks \[CLS\]"),
        ("vocab.json", "[1]", "no byte-level BPE"),
        ("vocab.json", '{"a": 0}', "has none of the pieces"),
    ],
)
def test_files_that_will_not_do(tmp_path: Path, name: str, text: str, problem: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    with pytest.raises(ValueError, match=problem):
        load_tokenizer(tmp_path)


def test_one_file_of_two_is_not_enough(folders: dict[str, Path], tmp_path: Path) -> None:
    shutil.copyfile(folders["byte-level"] / "vocab.json", tmp_path / "vocab.json")
    with pytest.raises(FileNotFoundError, match=r"no merges\.txt beside it"):
        load_tokenizer(tmp_path)


# --- SentencePiece as XLM-RoBERTa and ALBERT use it


@pytest.fixture(scope="module")
def fairseq(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from sentencepiece import SentencePieceTrainer

    folder = tmp_path_factory.mktemp("xlmr")
    SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT),
        model_prefix=str(folder / "made"),
        vocab_size=120,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    (folder / "made.model").rename(folder / "sentencepiece.bpe.model")
    return folder


def test_xlm_robertas_ids_are_one_behind_the_files(fairseq: Path) -> None:
    tokenizer = load_tokenizer(fairseq)
    raw = SentencePieceProcessor(model_file=str(fairseq / "sentencepiece.bpe.model"))
    size = raw.get_piece_size()
    assert (tokenizer.cls_id, tokenizer.pad_id, tokenizer.sep_id, tokenizer.unk_id) == (0, 1, 2, 3)
    assert (tokenizer.pieces, tokenizer.piece_id("<mask>")) == (size + 2, size + 1)
    assert (tokenizer.separators, tokenizer.segments) == (2, False)
    for page in (text.replace("...", ".") for text in TEXT[:3]):  # dots are a tie
        expected = [3 if i == 0 else i + 1 for i in raw.encode(page)]
        assert list(itertools.chain(*tokenizer.encode(page.split(" ")))) == expected
    (pieces,) = tokenizer.encode(["a</s><s><mask>\u2047"])
    assert {0, 1, 2, size + 1}.isdisjoint(pieces)


def test_an_alberts_words_lose_case_and_accents(
    spiece_models: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copyfile(spiece_models["plain-unigram"], tmp_path / "spiece.model")
    plain = load_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "albert"}', encoding="utf-8")
    albert = load_tokenizer(tmp_path)
    assert albert.encode(["Rivér", "``"]) == plain.encode(["river", '"'])
    assert albert.encode(["Rivér"]) != plain.encode(["Rivér"])
    (tmp_path / "tokenizer_config.json").write_text(
        '{"do_lower_case": false, "keep_accents": true}', encoding="utf-8"
    )
    assert load_tokenizer(tmp_path).encode(["Rivér"]) == plain.encode(["Rivér"])
    assert isinstance(albert, SentencePieceTokenizer)


def test_a_remberts_quotes_are_evened_out(spiece_models: dict[str, Path], tmp_path: Path) -> None:
    shutil.copyfile(spiece_models["plain-unigram"], tmp_path / "sentencepiece.model")
    plain = load_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "rembert"}', encoding="utf-8")
    rembert = load_tokenizer(tmp_path)
    words = ["``ice", "Rivér", "river''"]
    assert rembert.encode(words) == plain.encode(['"ice', "Rivér", 'river"'])
    assert set(rembert.files) == {"sentencepiece.model"}


# --- live, where transformers is installed


def theirs(folder: Path, model_type: str, tmp_path: Path, **options: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}), encoding="utf-8")
    return transformers.AutoTokenizer.from_pretrained(tmp_path, **options)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "model_type"),
    [("byte-level", "roberta"), ("unigram", "xlm-roberta"), ("wordpiece", "bert")],
)
def test_live_pieces_are_those_of_transformers(
    folders: dict[str, Path], kind: str, model_type: str, tmp_path: Path
) -> None:
    option = {"byte-level": "add_prefix_space", "wordpiece": "do_lower_case"}.get(kind)
    given = {option: kind == "byte-level"} if option else {}
    reference = theirs(folders[kind], model_type, tmp_path, **given)
    ours = load_tokenizer(folders[kind])
    question = "who walked"
    for page in PAGES[:3]:
        expected = reference(question, page)["input_ids"]
        pieces = [list(itertools.chain(*ours.encode(t.split(" ")))) for t in (question, page)]
        between = [ours.sep_id] * ours.separators
        assert [ours.cls_id, *pieces[0], *between, *pieces[1], ours.sep_id] == expected
    reference.save_pretrained(tmp_path / "saved")
    again = load_tokenizer(tmp_path / "saved")
    words = " ".join(PAGES).split(" ")
    assert again.encode(words) == ours.encode(words)
    assert (again.cls_id, again.sep_id, again.pad_id) == (ours.cls_id, ours.sep_id, ours.pad_id)
