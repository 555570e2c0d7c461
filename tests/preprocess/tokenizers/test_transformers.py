"""Pieces and places are those of the fast tokenizer of transformers, for each family and file."""

import importlib
import json
import string
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentencepiece import SentencePieceTrainer
from tokenizers import AddedToken, normalizers, pre_tokenizers

from nq.model.checkpoint import save_tokenizer
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer
from tests.preprocess.synthetic_examples import WORDS
from tests.preprocess.tokenizers.test_huggingface import (
    BERT,
    ROBERTA,
    TEXT,
    byte_level,
    cased_wordpiece,
    joined,
    unigram,
)

pytestmark = pytest.mark.filterwarnings("ignore")
transformers = pytest.importorskip("transformers")
CHARACTERS = [*dict.fromkeys("".join(TEXT)), *string.ascii_letters, *string.digits, *"[]<>/#'`."]
MPNET = ["<s>", "<pad>", "</s>", "<unk>"]
Files = dict[str, Any]


def words(*special: str, prefix: str = "##") -> list[str]:
    """Returns the vocabulary of a WordPiece."""
    plain = [word.removeprefix("##") for word in WORDS]
    letters = [c.strip() for c in CHARACTERS if c.strip()]
    inside = [prefix + text for text in (*plain, *letters)]
    return [*dict.fromkeys([*special, *plain, *letters, *inside])]


def description(prefix: str = "##", **steps: Any) -> Files:
    """Returns the tokenizer.json of a WordPiece."""
    vocab = {piece: i for i, piece in enumerate(words(*BERT, prefix=prefix))}
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": prefix}
    special: list[Files] = [
        {"id": i, "content": piece, "special": True, "normalized": False}
        | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
        for i, piece in enumerate(BERT)
    ]
    normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
    values = {
        "version": "1.0",
        "added_tokens": special,
        "normalizer": {**normalizer, "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {**model, "max_input_chars_per_word": 100, "vocab": vocab},
        **steps,
    }
    return {**dict.fromkeys(("truncation", "padding", "post_processor", "decoder")), **values}


def spiece(folder: Path, name: str, **options: Any) -> None:
    """Trains a SentencePiece model."""
    text = [*TEXT, *map(str.lower, TEXT), " ".join(CHARACTERS)] * 3
    with (folder / name).open("wb") as file:
        SentencePieceTrainer.train(
            sentence_iterator=iter(text), model_writer=file, vocab_size=220, minloglevel=2,
            hard_vocab_limit=False, character_coverage=1.0, **options,
        )  # fmt: skip


ALBERT: Files = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1}
ALBERT |= {"control_symbols": ["[CLS]", "[SEP]", "[MASK]"]}
DEBERTA: Files = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "pad_piece": "[PAD]"}
DEBERTA |= {"bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"}
FILES: dict[str, Files] = {
    "spiece.model": ALBERT,
    "sentencepiece.model": {  # transformers 5 takes the id 2 for unknown
        **{"pad_id": 0, "bos_id": 1, "unk_id": 2, "eos_id": 3},
        **{"bos_piece": "[CLS]", "eos_piece": "[SEP]"},
    },
    "sentencepiece.bpe.model": {},
    "spm.model": DEBERTA,
}
PLAIN = {"tokenizer_class": "PreTrainedTokenizerFast"}
NFKC = {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]}
NFD = {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}]}
CLEAN_TEXT = {
    **{"type": "BertNormalizer", "clean_text": False, "strip_accents": None},
    **{"handle_chinese_chars": True, "lowercase": False},
}
ADDED: dict[str, Files] = {
    "covid19": {},
    "NaïveX": {"normalized": True},
    "c++": {"single_word": True},
    "«R»": {"normalized": False},
    "<ent>": {"special": True},
}


def added(first: int) -> dict[str, Any]:
    """Returns the added tokens of a tokenizer_config.json, from an id on."""
    flags = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False}
    tokens = enumerate(ADDED.items(), start=first)
    return {str(i): {"content": t, "special": False, **flags, **own} for i, (t, own) in tokens}


def roberta() -> Files:
    model = json.loads(byte_level().to_str())["model"]
    merges = "\n".join(" ".join(pair) for pair in model["merges"])
    return {"vocab.json": model["vocab"], "merges.txt": f"#version: 0.2\n{merges}\n"}


def whole(make: Callable[[], Any]) -> Files:
    """Returns the tokenizer.json of a library with added tokens."""
    library = make()
    library.add_tokens([AddedToken(token, **flags) for token, flags in ADDED.items()])
    return dict(json.loads(library.to_str()))


def uncased_wordpiece() -> Any:
    library = cased_wordpiece()
    library.normalizer = normalizers.BertNormalizer()
    return library


def metaspace_first() -> Any:
    library = unigram()
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    return library


def json_of(make: Callable[[], Any]) -> Callable[[], Files]:
    return lambda: {"tokenizer.json": whole(make)}


VOCAB = {"vocab.txt": words(*BERT)}
SPIECE, REMBERT, SPIECE_BPE, SPM = ({name: ...} for name in FILES)
FOLDERS: dict[str, tuple[str, Files | Callable[[], Files], Files]] = {
    "bert": ("bert", VOCAB, {}),
    "cased bert": ("bert", VOCAB, {"do_lower_case": False}),
    "accents": ("electra", VOCAB, {"strip_accents": False}),
    "chinese": ("bert", VOCAB, {"tokenize_chinese_chars": False}),
    "unknown piece": (
        "bert",
        {"vocab.txt": [p.replace("[UNK]", "<unk>") for p in words(*BERT)]},
        {"tokenizer_class": "BertTokenizer", "unk_token": "<unk>"},
    ),
    "added": (
        "distilbert",
        VOCAB,
        {
            "tokenizer_class": "DistilBertTokenizer",
            "added_tokens_decoder": added(len(words(*BERT))),
        },
    ),
    "mpnet": ("mpnet", {"vocab.txt": words(*MPNET, "[UNK]", "<mask>")}, {}),
    "roberta": ("roberta", roberta, {"tokenizer_class": "RobertaTokenizer"}),
    "roberta prefix": ("roberta", roberta, {"add_prefix_space": True}),
    "roberta json": ("roberta", json_of(byte_level), {}),
    "roberta json prefix": (
        "roberta",
        json_of(byte_level),
        {"tokenizer_class": "RobertaTokenizerFast", "add_prefix_space": True},
    ),
    "roberta added": (
        "roberta",
        lambda: {
            **(files := roberta()),
            "added_tokens.json": {t: len(files["vocab.json"]) + i for i, t in enumerate(ADDED)},
        },
        {"tokenizer_class": "RobertaTokenizer", "additional_special_tokens": ["<ent>"]},
    ),
    "modernbert": ("modernbert", json_of(byte_level), {}),
    "albert": ("albert", SPIECE, {}),
    "cased albert": ("albert", SPIECE, {"do_lower_case": False, "keep_accents": True}),
    "rembert": ("rembert", REMBERT, {}),
    "uncased rembert": ("rembert", REMBERT, {"do_lower_case": True, "keep_accents": False}),
    "xlm-roberta": ("xlm-roberta", SPIECE_BPE, {}),
    "xlm-roberta json": ("xlm-roberta", json_of(unigram), {}),
    "camembert": ("camembert", SPIECE_BPE, {}),
    "deberta": ("deberta-v2", SPM, {}),
    "deberta lower case": ("deberta-v2", SPM, {"do_lower_case": True, "split_by_punct": True}),
    "json": ("bert", {"tokenizer.json": description()}, PLAIN),
    "unigram json": ("bert", json_of(unigram), PLAIN),
    "metaspace first": ("bert", json_of(metaspace_first), PLAIN),
    "uncased json": ("bert", json_of(uncased_wordpiece), PLAIN),
    "accents of json": ("bert", {"tokenizer.json": description(normalizer=NFD)}, PLAIN),
    "json of the class": (
        "bert",
        {"tokenizer.json": description(normalizer=None)},
        {"tokenizer_class": "BertTokenizer", "do_lower_case": False},
    ),
    "older files": (
        "bert",
        {
            **VOCAB,
            "special_tokens_map.json": {"sep_token": "[MASK]", "cls_token": {"content": "[PAD]"}},
            "added_tokens.json": {token: len(words(*BERT)) + i for i, token in enumerate(ADDED)},
        },
        {"additional_special_tokens": ["<ent>"]},
    ),
    "prefix": ("bert", {"tokenizer.json": description("@@")}, PLAIN),
    "do_lower_case of json": (
        "bert",
        {"tokenizer.json": description()},
        {**PLAIN, "do_lower_case": False},
    ),
    "other vocabulary": (
        "bert",
        {
            "tokenizer.json": description(normalizer=NFKC, pre_tokenizer={"type": "Whitespace"}),
            **VOCAB,
        },
        PLAIN,
    ),
    "clean_text": ("bert", {"tokenizer.json": description(normalizer=CLEAN_TEXT), **VOCAB}, PLAIN),
}
"""Folders by what is special about them: ``model_type``, files and ``tokenizer_config.json``."""


def write(folder: Path, model_type: str, files: Files, config: Files) -> Path:
    """Writes the files of a tokenizer and of a model's config."""
    both = {"config.json": {"model_type": model_type}, "tokenizer_config.json": config}
    for name, value in (files | both).items():
        if value is ...:
            spiece(folder, name, **FILES[name])
        elif isinstance(value, dict):
            (folder / name).write_text(json.dumps(value))
        else:
            text = value if isinstance(value, str) else "".join(f"{row}\n" for row in value)
            (folder / name).write_text(text, encoding="utf-8")
    return folder


def protobuf() -> Any:
    return importlib.import_module("transformers.utils.sentencepiece_model_pb2_new")


@pytest.fixture(scope="module", params=FOLDERS)
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Tokenizer, Any, Tokenizer]]:
    """A tokenizer, that of transformers, and the first one saved and loaded again."""
    model_type, files, config = FOLDERS[request.param]
    files = files() if callable(files) else files
    folder = write(tmp_path_factory.mktemp("folder"), model_type, files, config)
    tokenizer, saved = load_tokenizer(folder), tmp_path_factory.mktemp("saved")
    (saved / "config.json").write_text(json.dumps({"model_type": model_type}))
    save_tokenizer(saved, tokenizer)
    with pytest.MonkeyPatch.context() as patch:  # sentencepiece's own needs a newer protobuf
        patch.setitem(sys.modules, "sentencepiece.sentencepiece_model_pb2", protobuf())
        reference = transformers.AutoTokenizer.from_pretrained(folder).backend_tokenizer
    reference.encode_special_tokens = True  # text stays text
    yield tokenizer, reference, load_tokenizer(saved)


SNIPPETS = [
    *("Who ", "the bridge", " river", "  ", "\n", "\t", "\u00a0", "Øresund", "straße", "1,969"),
    *("東京の川", "がぎ", "e\u0301", "a\u0323\u0308", "Ünïcödé", "ﬁne ½", "«q»", "``x''", "\u200b"),
    *("\U0001f600", "\U0001f469\u200d\U0001f680", "\x00", "\x07", "\ufeff", "\ufffd", "İI", "ß"),
    *("[SEP]", "</s>", "<mask>", "[CLS] ", *ADDED, "x" * 99, "y" * 101),
    *(*map(str.upper, ADDED), *map(str.lower, ADDED), "Ġ▁", "Walked", "isn't", "e.g. "),
]
texts = st.lists(
    st.one_of(
        st.sampled_from(SNIPPETS), st.text(max_size=4), st.text("abé日\u0301 .'", max_size=6)
    ),
    max_size=8,
).map("".join)


@settings(max_examples=150, deadline=None)
@given(text=texts)
def test_pieces_and_places_are_those_of_transformers(
    both: tuple[Tokenizer, Any, Tokenizer], text: str
) -> None:
    tokenizer, reference, again = both
    expected = reference.encode(text, add_special_tokens=False)
    pieces = tokenizer.encode_text(text)
    assert again.encode_text(text).ids == pieces.ids
    special = {i for i in map(tokenizer.piece_id, (*BERT, *ROBERTA, "<ent>")) if i is not None}
    special -= {tokenizer.unk_id}
    assert special.isdisjoint(pieces.ids)
    if special.isdisjoint(expected.ids):  # transformers finds those of a unigram in text
        assert list(pieces.ids) == expected.ids
        assert list(map(tuple, pieces.chars.tolist())) == expected.offsets
    words = " ".join(text.split())
    before = len(reference.encode("a", add_special_tokens=False).ids)
    inside = reference.encode(f"a {words}", add_special_tokens=False).ids[before:]
    if words and special.isdisjoint(inside):
        assert joined(tokenizer, words) == inside


def test_special_pieces_are_those_of_transformers(both: tuple[Tokenizer, Any, Tokenizer]) -> None:
    tokenizer, reference, again = both
    assert again.digest == tokenizer.digest
    for one in (tokenizer, again):
        plain, single = (reference.encode("who", add_special_tokens=b).ids for b in (False, True))
        assert single in (plain, [one.cls_id, *plain, one.sep_id])  # a template may be absent
        pair, between = reference.encode("who", "who"), [one.sep_id] * one.separators
        assert pair.ids in (plain * 2, [one.cls_id, *plain, *between, *plain, one.sep_id])
        assert not one.segments or 1 in pair.type_ids
        for piece in (*BERT, *ROBERTA):
            assert reference.token_to_id(piece) in (None, one.piece_id(piece)), piece


@pytest.mark.parametrize("name", ["BertJapaneseTokenizer", "BertweetTokenizer", "T5Tokenizer"])
def test_another_class_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path, "bert", VOCAB, {"tokenizer_class": name})
    with pytest.raises(ValueError, match=f"'{name}'"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("files", "config"),
    [
        (VOCAB, PLAIN),  # which has a tokenizer.json only
        ({"tokenizer.json": whole(byte_level)}, {"tokenizer_class": "BertTokenizer"}),
        (SPIECE, {"tokenizer_class": "BertTokenizer"}),
    ],
)
def test_files_that_do_not_fit_the_class_are_refused(
    tmp_path: Path, files: Files, config: Files
) -> None:
    write(tmp_path, "bert", files, config)
    with pytest.raises(ValueError, match=r"tokenizer\.json|no vocab\.txt"):
        load_tokenizer(tmp_path)


def test_a_sentencepiece_model_of_pairs_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "albert", {}, {})
    spiece(tmp_path, "spiece.model", **ALBERT, model_type="bpe")
    with pytest.raises(ValueError, match=r"spiece\.model .* unigram"):
        load_tokenizer(tmp_path)
