"""Tokenizers of Hugging Face folders: byte-level BPE, unigram, WordPiece; XLM-RoBERTa, ALBERT."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer
from tokenizers import Regex, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Library

from nq.preprocess.tokenizers.base import MARKERS, Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.preprocess.tokenizers.wordpiece import OriginalWordPieceTokenizer
from tests.preprocess.synthetic_examples import FULLWIDTH_SEP, ODD_WORDS, SPECIAL_WORDS, any_words

TEXT = [
    "The old bridge over the river is made of ice , isn't it ?",
    "Who walked 1,969 miles along Øresund in 2019 — and why?",
    "東京の川 は 深い。 Ünïcödé straße ﬁne ½ «quoted» e.g. U.S. [...] <b> 3.14%",
] * 30
ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SPECIAL = (*ROBERTA, *BERT)
SCRIPTS = [
    *("The old bridge crosses the river.", "η παλιά γέφυρα περνά το ποτάμι."),
    *("Старый мост идёт через реку.", "הגשר הישן חוצה את הנהר.", "الجسر القديم يعبر النهر."),
    *("पुराना पुल नदी को पार करता है।", "สะพานเก่าข้ามคลอง", "古い橋は川をわたる。"),
    *("오래된 다리가 강을 건넌다.", "ძველი ხიდი მდინარეს კვეთს.", "Հին կամուրջը անցնում է գետը"),
]
ODD = (*SPECIAL, *MARKERS, *ODD_WORDS, *SPECIAL_WORDS, FULLWIDTH_SEP)


def byte_level() -> Library:
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=ROBERTA, initial_alphabet=alphabet, show_progress=False
    )
    library.train_from_iterator(TEXT, trainer)
    library.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return library


def unigram() -> Library:
    library = Library(models.Unigram())
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    trainer = trainers.UnigramTrainer(
        vocab_size=150, special_tokens=ROBERTA, unk_token="<unk>", show_progress=False
    )
    library.train_from_iterator(TEXT, trainer)
    pair, special = "<s> $A </s> </s> $B </s>", [("<s>", 0), ("</s>", 2)]
    library.post_processor = processors.TemplateProcessing("<s> $A </s>", pair, special)
    return library


def cased_wordpiece() -> Library:
    library = Library(models.WordPiece(unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=False)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=BERT, show_progress=False)
    library.train_from_iterator(TEXT, trainer)
    return library


KINDS = {
    "byte-level": byte_level,
    "byte-level-json": byte_level,
    "unigram": unigram,
    "wordpiece": cased_wordpiece,
}
each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder of each kind."""
    root = tmp_path_factory.mktemp("library")
    for kind, make in KINDS.items():
        folder, library = root / kind, make()
        folder.mkdir()
        if kind == "byte-level":
            library.model.save(str(folder))
        else:
            library.save(str(folder / "tokenizer.json"))
    return {kind: root / kind for kind in KINDS}


@pytest.fixture(scope="module")
def tokenizers(
    folders: dict[str, Path], wordpiece: Tokenizer, spiece_models: dict[str, Path]
) -> list[Tokenizer]:
    return [wordpiece, *map(load_tokenizer, [*folders.values(), *spiece_models.values()])]


def joined(tokenizer: Tokenizer, text: str) -> list[int]:
    """Returns the pieces of all words of a text."""
    return list(itertools.chain.from_iterable(tokenizer.encode(text.split(" "))))


def test_the_kind_follows_from_the_files(folders: dict[str, Path]) -> None:
    assert {type(load_tokenizer(folder)) for folder in folders.values()} == {Tokenizer}
    assert set(load_tokenizer(folders["byte-level"]).files) == {"vocab.json", "merges.txt"}
    assert type(load_tokenizer(folders["wordpiece"], "kisialiou")) is OriginalWordPieceTokenizer


@each_kind
def test_markers_follow_the_last_piece(folders: dict[str, Path], kind: str) -> None:
    tokenizer = load_tokenizer(folders[kind])
    assert tokenizer.vocab_size == tokenizer.pieces + len(MARKERS)
    assert tokenizer.marker_id(MARKERS[0]) == tokenizer.pieces
    assert tokenizer.encode(["", "\u00a0", " ", "ice"])[:3] == [(), (), ()]


def test_markers_in_a_file_keep_their_ids(tmp_path: Path) -> None:
    library = cased_wordpiece()
    library.add_special_tokens([*MARKERS])
    library.save(str(tmp_path / "tokenizer.json"))
    ids = list(map(load_tokenizer(tmp_path).marker_id, MARKERS))
    assert ids == list(map(library.token_to_id, MARKERS))


@given(st.lists(st.one_of(any_words, st.sampled_from(ODD)), min_size=1, max_size=3))
def test_no_text_becomes_a_special_piece(tokenizers: list[Tokenizer], parts: list[str]) -> None:
    for tokenizer in tokenizers:
        special = {*map(tokenizer.piece_id, SPECIAL), *map(tokenizer.marker_id, MARKERS)}
        special |= {tokenizer.cls_id, tokenizer.sep_id}
        for word in ("".join(parts), f"a{parts[0]}", f"\u2581{parts[0]}"):
            (pieces,) = tokenizer.encode([word])
            assert (special - {tokenizer.unk_id}).isdisjoint(pieces)
            text = tokenizer.encode_text(f"the {word} river")
            assert (special - {tokenizer.unk_id}).isdisjoint(text.ids)
            assert len(text.ids) == len(text.words) == len(text.chars)


@pytest.mark.parametrize("step", ["normalizer", "pre_tokenizer"])
@pytest.mark.parametrize("pattern", [" {2,}", r"\s{2,}|[\n\r\t]", "(a+)+$", '"\\\\'])
def test_only_a_known_regular_expression_is_taken(tmp_path: Path, step: str, pattern: str) -> None:
    library, regex = unigram(), Regex(pattern)
    if step == "normalizer":
        library.normalizer = normalizers.Replace(regex, " ")
    else:
        library.pre_tokenizer = pre_tokenizers.Split(regex, "isolated")
    library.save(str(tmp_path / "tokenizer.json"))
    if "{2,}" in pattern:
        assert load_tokenizer(tmp_path).encode(["lake"])
        return
    with pytest.raises(ValueError, match="regular expression"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("family", "model_type", "shift"),
    [("", "unigram", 0), ("", "bpe", 0), ("xlm-roberta", "unigram", 1), ("albert", "unigram", 0)],
)
def test_pieces_and_places_are_those_of_sentencepiece(
    family: str, model_type: str, shift: int, tmp_path: Path
) -> None:
    """Of a class of transformers, places are without the blanks that pieces begin with."""
    name = "sentencepiece.bpe" if shift else "spiece"
    SentencePieceTrainer.train(
        sentence_iterator=iter(SCRIPTS * 4), model_prefix=str(tmp_path / name), minloglevel=2,
        vocab_size=600, hard_vocab_limit=False, character_coverage=1.0, model_type=model_type,
        byte_fallback=not family,
    )  # fmt: skip
    if family:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": family}))
        config = {"do_lower_case": False, "keep_accents": True}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = load_tokenizer(tmp_path)
    processor = SentencePieceProcessor(model_file=str(tmp_path / f"{name}.model"))
    for text in [*SCRIPTS, "  ".join(SCRIPTS), "½  ﬁne e\u0301 \U0001f600"]:
        expected, actual = processor.encode_as_offset_mapping(text), tokenizer.encode_text(text)
        ids = [i + shift if i or not shift else tokenizer.unk_id for i in expected["ids"]]
        assert actual.ids == ids == joined(tokenizer, " ".join(text.split()))
        first = [piece.startswith("\u2581") for piece in expected["pieces"]]
        words, chars = actual.words, actual.chars.tolist()
        assert (np.diff(words, prepend=words[0] - 1) > 0).tolist() == first
        if not family:
            assert list(map(tuple, chars)) == expected["offsets"]
        elif text in SCRIPTS:  # elsewhere several pieces have one character
            places = zip(chars, expected["offsets"], expected["pieces"], strict=True)
            own = [(a, b) for a, b, piece in places if piece != "\u2581"]
            assert [text[a:b] for (a, b), _ in own] == [text[a:b].lstrip() for _, (a, b) in own]
