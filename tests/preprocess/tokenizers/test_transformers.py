"""Pieces and places are those of the fast tokenizer of transformers, for each kind of folder."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library
from transformers import AutoTokenizer

from nq import extras
from nq.errors import Error
from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.preprocess.tokenizers.wordpiece import MAX_WORD_CHARS
from tests.preprocess.synthetic_tokenizers import (
    BERT,
    ROBERTA,
    byte_level,
    cased_wordpiece,
    spiece,
    unigram,
    vocabulary,
    write_folder,
)

pytestmark = pytest.mark.filterwarnings("ignore")
ADDED: dict[str, dict[str, bool]] = {
    "covid19": {},
    "NaïveX": {"normalized": True},
    "c++": {"single_word": True},
    "«R»": {"normalized": False},
    "<ent>": {"special": True},
}
ALBERT = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
MPNET = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
XLM = ["<s>", "<unk>", "</s>"]


def with_added(library: Library) -> dict[str, Any]:
    """Returns the folder of a ``tokenizer.json`` with added tokens, which is used as it is."""
    library.add_tokens([AddedToken(token, **flags) for token, flags in ADDED.items()])
    return {
        "tokenizer.json": library,
        "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"},
    }


def other_steps() -> Library:
    library = cased_wordpiece()
    library.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    return library


def roberta() -> dict[str, Any]:
    model = json.loads(byte_level().to_str())["model"]
    merges = ["#version: 0.2", *map(" ".join, model["merges"])]
    return {"vocab.json": model["vocab"], "merges.txt": merges}


def of(config: dict[str, Any], files: Mapping[str, Any]) -> dict[str, Any]:
    return {**files, "tokenizer_config.json": config}


VOCAB = {"vocab.txt": vocabulary()}
DECODER = {
    str(i): {"content": token, **flags}
    for i, (token, flags) in enumerate(ADDED.items(), start=len(vocabulary()))
}
CASED = {"vocab.txt": vocabulary(lowercase=False)}
FOLDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("bert", VOCAB),
    "cased": ("bert", of({"do_lower_case": False}, CASED)),
    "accents": ("electra", of({"strip_accents": False}, VOCAB)),
    "chinese": ("bert", of({"tokenize_chinese_chars": False}, VOCAB)),
    "mpnet": ("mpnet", {"vocab.txt": vocabulary(MPNET)}),
    "added tokens": ("distilbert", of({"added_tokens_decoder": DECODER}, VOCAB)),
    "roberta": ("roberta", of({"add_prefix_space": True}, roberta())),
    "albert": ("albert", {"spiece.model": spiece(ALBERT)}),
    "xlm-roberta": ("xlm-roberta", {"sentencepiece.bpe.model": spiece(XLM)}),
    "deberta": ("deberta-v2", {"spm.model": spiece()}),
    "byte-level json": ("modernbert", with_added(byte_level())),
    "unigram json": ("xlm-roberta", with_added(unigram())),
    "wordpiece json": ("bert", with_added(cased_wordpiece())),
    "other steps": ("bert", with_added(other_steps()) | VOCAB),
}
"""Folders by what is special about them: ``model_type`` and files."""


@pytest.fixture(scope="module", params=FOLDERS)
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Tokenizer, Any, Tokenizer]:
    """A tokenizer, that of transformers, and the first one saved and loaded again."""
    model_type, files = FOLDERS[request.param]
    config = {"config.json": {"model_type": model_type}}
    folder = write_folder(tmp_path_factory.mktemp("folder"), files | config)
    saved = write_folder(tmp_path_factory.mktemp("saved"), config)
    tokenizer = load_tokenizer(folder)
    tokenizer.save(saved)
    reference = AutoTokenizer.from_pretrained(folder).backend_tokenizer
    reference.encode_special_tokens = True  # text stays text
    if "vocab.txt" in tokenizer.files:
        reference.model.max_input_chars_per_word = MAX_WORD_CHARS
    return tokenizer, reference, load_tokenizer(saved)


SNIPPETS = """
    Who bridge river Øresund straße 1,969 東京の川 がぎ e\u0301 a\u0323\u0308 Ünïcödé ﬁne½ «q» ``x''
    \u200b \U0001f600 \U0001f469\u200d\U0001f680 \x00 \x07 \ufeff \ufffd İI ß [SEP] </s> <mask>
    [CLS] covid19 NaïveX c++ «R» <ent> COVID19 NAÏVEX Ġ▁ Walked isn't e.g.
"""
parts = st.one_of(
    st.sampled_from([*SNIPPETS.split(), " ", "  ", "\n", "\t", "\u00a0", "x" * 99]),
    st.text(max_size=4),
    st.text("abé日\u0301 .'", max_size=6),
)


@settings(max_examples=150, deadline=None)
@given(text=st.lists(parts, max_size=8).map("".join))
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
    words = text.split()
    before = len(reference.encode("a", add_special_tokens=False).ids)
    inside = reference.encode(" ".join(["a", *words]), add_special_tokens=False).ids[before:]
    if words and special.isdisjoint(inside):
        assert sum(tokenizer.encode(words), ()) == tuple(inside)


def test_special_pieces_are_those_of_transformers(both: tuple[Tokenizer, Any, Tokenizer]) -> None:
    tokenizer, reference, again = both
    assert again.digest == tokenizer.digest
    for one in (tokenizer, again):
        plain = reference.encode("who", add_special_tokens=False).ids
        pair = reference.encode("who", "who")
        between = [one.sep_id] * one.separators
        # a template may be absent
        assert pair.ids in (plain * 2, [one.cls_id, *plain, *between, *plain, one.sep_id])
        assert not one.segments or 1 in pair.type_ids


@pytest.mark.parametrize("name", ["BertJapaneseTokenizer", "PreTrainedTokenizerFast"])
def test_files_that_do_not_fit_their_class_are_refused(tmp_path: Path, name: str) -> None:
    write_folder(tmp_path, of({"tokenizer_class": name}, VOCAB))
    with pytest.raises(ValueError, match=r"transformers makes no tokenizer of .*vocab\.txt"):
        load_tokenizer(tmp_path)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.EXTRAS, "transformers", ("no_such_package",))
    write_folder(tmp_path, {"spm.model": spiece()})
    with pytest.raises(Error, match=r"spm\.model needs no_such_package.*nq-pipeline\[transformers"):
        load_tokenizer(tmp_path)
