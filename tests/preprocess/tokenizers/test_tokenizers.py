"""Tokenizers: words to pieces, and markers that no text can spell."""

from __future__ import annotations

import itertools
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceTrainer
from tokenizers import Tokenizer as Library
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from nq.formats.decoding import read_records
from nq.model.checkpoint import save_tokenizer
from nq.preprocess.tokenizers.base import MARKERS, Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer, tokenizer_digest
from nq.preprocess.tokenizers.sentencepiece import SentencePieceTokenizer
from nq.preprocess.tokenizers.wordpiece import (
    OriginalWordPieceTokenizer,
    WordPieceTokenizer,
    read_vocab,
)
from nq.records import Example
from tests.preprocess.synthetic_examples import (
    BLANK_WORDS,
    FULLWIDTH_SEP,
    ODD_WORDS,
    SPECIAL_WORDS,
    WORDS,
    any_words,
    bert_rows,
    few,
    plain_words,
    write_rows,
)

CASED_ROWS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "Ice", "ice", "i", "##ce", "##E"]
MODELS = ("plain-unigram", "plain-bpe", "markers", "loose")


def spelled(tokenizer: Tokenizer, *words: str) -> list[list[str]]:
    """The pieces of each word by their spelling."""
    assert isinstance(tokenizer, WordPieceTokenizer)
    rows = {i: piece for piece, i in read_vocab(tokenizer.files["vocab.txt"]).items()}
    return [[rows[i] for i in pieces] for pieces in tokenizer.encode(words)]


def library(vocab_file: Path, lowercase: bool = True) -> Library:
    """What the library makes of a whole text, as a fast BERT tokenizer is set up."""
    made = Library(WordPiece(read_vocab(vocab_file), unk_token="[UNK]"))
    made.normalizer = BertNormalizer(lowercase=lowercase)
    made.pre_tokenizer = BertPreTokenizer()
    return made


def meanings(tokenizer: Tokenizer) -> set[int]:
    """Ids that text must never have."""
    return {
        *(tokenizer.cls_id, tokenizer.sep_id),
        *(tokenizer.marker_id(marker) for marker in MARKERS),
        *(
            i
            for p in ("[PAD]", "[MASK]", "<mask>", "<pad>")
            if (i := tokenizer.piece_id(p)) is not None
        ),
    }


# --- WordPiece


def test_pieces(wordpiece: WordPieceTokenizer) -> None:
    assert spelled(wordpiece, "Flows", "walking,", "Müll", "中city", "[SEP]", "xyzzy", "€") == [
        ["flow", "##s"],
        ["walk", "##ing", ","],
        ["m", "##u", "##l", "##l"],
        ["中", "city"],
        ["[", "s", "##e", "##p", "]"],
        ["x", "##y", "##z", "##z", "##y"],
        ["[UNK]"],
    ]


@few
@given(plain_words)
def test_the_longest_piece_first(wordpiece: WordPieceTokenizer, word: str) -> None:
    vocab = read_vocab(wordpiece.files["vocab.txt"])
    pieces: list[str] = []
    rest = word.lower()
    while rest:
        mark = "##" if pieces else ""
        longest = next(end for end in range(len(rest), 0, -1) if mark + rest[:end] in vocab)
        pieces.append(mark + rest[:longest])
        rest = rest[longest:]
    assert spelled(wordpiece, word) == [pieces]


def test_words_beyond_200_characters_are_unknown(wordpiece: WordPieceTokenizer) -> None:
    short, long = wordpiece.encode(["a" * 200, "a" * 201])
    assert (len(short), long) == (200, (wordpiece.unk_id,))


@pytest.mark.parametrize("word", [*SPECIAL_WORDS, *ODD_WORDS, *MARKERS])
def test_text_that_spells_a_special_piece_stays_text(
    wordpiece: WordPieceTokenizer, word: str
) -> None:
    (pieces,) = wordpiece.encode([word])
    assert meanings(wordpiece).isdisjoint(pieces)


@few
@given(any_words)
def test_no_text_becomes_a_special_piece(wordpiece: WordPieceTokenizer, word: str) -> None:
    (pieces,) = wordpiece.encode([word])
    assert meanings(wordpiece).isdisjoint(pieces)


@pytest.mark.parametrize("word", BLANK_WORDS)
def test_a_blank_word_has_no_pieces(wordpiece: WordPieceTokenizer, word: str) -> None:
    assert wordpiece.encode([word, "ice"])[0] == ()


@few
@given(st.lists(any_words, max_size=20))
def test_word_by_word_is_the_whole_text(
    wordpiece: WordPieceTokenizer, vocab_file: Path, words: list[str]
) -> None:
    words = [word for word in words if len(word) < 100]
    whole = library(vocab_file).encode(" ".join(words), add_special_tokens=False).ids
    assert list(itertools.chain.from_iterable(wordpiece.encode(words))) == whole


def test_a_full_cache_does_not_change_the_pieces(vocab_file: Path) -> None:
    tokenizer, words = WordPieceTokenizer(vocab_file), ["river", "ice", "river", "walk"]
    tokenizer.max_cached_words = 3
    first = [tokenizer.encode(words), tokenizer.encode(["bridge"]), tokenizer.encode(words)]
    assert first[0] == first[2] == [tokenizer.encode([word])[0] for word in words]


def test_the_cache_is_bounded_by_characters_and_pieces(vocab_file: Path) -> None:
    tokenizer = WordPieceTokenizer(vocab_file)
    tokenizer.max_cached_size = 1000
    for number in range(50):
        words = [f"{number}{'ice' * 30}", "river", f"{number}", "x" * 300]
        assert tokenizer.encode(words) == WordPieceTokenizer(vocab_file).encode(words)
        cached = tokenizer._cache.items()
        assert sum(len(word) + len(pieces) for word, pieces in cached) < 1000 + 500


def test_threads_share_a_tokenizer(vocab_file: Path) -> None:
    tokenizer = WordPieceTokenizer(vocab_file)
    tokenizer.max_cached_words = 20  # full all the time
    pages = [[f"{word}{i % (n + 7)}" for i, word in enumerate(WORDS)] for n in range(40)]
    expected = [WordPieceTokenizer(vocab_file).encode(page) for page in pages]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(tokenizer.encode, pages * 10)) == expected * 10
    finally:
        sys.setswitchinterval(interval)


def test_markers_are_rows_104_to_310(wordpiece: WordPieceTokenizer, tmp_path: Path) -> None:
    plain = WordPieceTokenizer(write_rows(tmp_path / "vocab.txt", bert_rows(markers=False)))
    for tokenizer in (wordpiece, plain):
        assert [tokenizer.marker_id(marker) for marker in MARKERS] == list(range(104, 311))
        assert tokenizer.marker_id("[Other=1]") == tokenizer.unk_id
        assert tokenizer.marker_id("[ContextId=51]") == tokenizer.unk_id
        assert tokenizer.vocab_size == len(bert_rows())


def test_a_vocabulary_without_unused_rows_gets_new_ids(tmp_path: Path) -> None:
    tokenizer = WordPieceTokenizer(write_rows(tmp_path / "vocab.txt", CASED_ROWS))
    assert [tokenizer.marker_id(m) for m in MARKERS] == list(range(9, 9 + len(MARKERS)))
    assert tokenizer.vocab_size == 9 + len(MARKERS)


def test_the_vocabulary_of_mpnet(tmp_path: Path) -> None:
    rows = ["<s>", "<pad>", "</s>", "<unk>", *bert_rows(markers=False), "<mask>"]
    tokenizer = load_tokenizer(write_rows(tmp_path / "vocab.txt", rows))
    assert (tokenizer.cls_id, tokenizer.pad_id, tokenizer.sep_id) == (0, 1, 2)
    assert rows[tokenizer.unk_id] == "[UNK]"
    assert (tokenizer.separators, tokenizer.segments) == (2, False)
    assert [rows[tokenizer.marker_id(m)] for m in MARKERS[:2]] == ["[unused99]", "[unused100]"]
    assert tokenizer.vocab_size == len(rows)
    for word in ("<s>", "</s>", "<pad>", "<mask>", "<unk>", *MARKERS):
        assert not {0, 1, 2, 3, len(rows) - 1} & set(tokenizer.encode([word])[0])


def test_a_bert_vocabulary_may_hold_the_special_pieces_of_mpnet(tmp_path: Path) -> None:
    rows = [*bert_rows(), "<s>", "<pad>", "</s>"]
    tokenizer = load_tokenizer(write_rows(tmp_path / "vocab.txt", rows))
    assert rows[tokenizer.cls_id] == "[CLS]" and rows[tokenizer.pad_id] == "[PAD]"
    assert (tokenizer.separators, tokenizer.segments) == (1, True)


@pytest.mark.parametrize("end", ["\r\n", "\n\n\n", "\r\n \r\n", ""])
def test_line_ends_and_blank_last_lines(tmp_path: Path, end: str) -> None:
    path = tmp_path / "vocab.txt"
    between = "\r\n" if "\r" in end else "\n"
    path.write_bytes(b"\xef\xbb\xbf" + (between.join(CASED_ROWS) + end).encode())
    assert read_vocab(path) == {row: i for i, row in enumerate(CASED_ROWS)}


def test_of_a_repeated_piece_the_last_row_counts(tmp_path: Path) -> None:
    vocab = read_vocab(write_rows(tmp_path / "vocab.txt", [*CASED_ROWS, "ice"]))
    assert (vocab["ice"], len(vocab)) == (9, 9)


def test_no_bert_vocabulary(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "vocab.txt", ["[PAD]", "[UNK]", "[SEP]", "ice"])
    with pytest.raises(ValueError, match=r"vocab\.txt lacks \[CLS\]: expected a BERT vocab"):
        WordPieceTokenizer(path)
    path.write_bytes(b"[PAD]\n\xff\xfe")
    with pytest.raises(ValueError, match=r"vocab\.txt is not a BERT vocab\.txt: .* byte 0xff"):
        WordPieceTokenizer(path)


@pytest.mark.parametrize(
    ("config", "pieces"),
    [
        (None, ["Ice"]),
        ("{}", ["Ice"]),
        ('{"do_lower_case": null}', ["Ice"]),
        ('{"do_lower_case": false}', ["Ice"]),
        ('{"do_lower_case": true}', ["ice"]),
    ],
)
def test_case_is_as_the_config_says_or_as_the_vocabulary_is(
    tmp_path: Path, config: str | None, pieces: list[str]
) -> None:
    write_rows(tmp_path / "vocab.txt", CASED_ROWS)
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(config)
    assert spelled(load_tokenizer(tmp_path), "Ice") == [pieces]
    assert spelled(load_tokenizer(tmp_path, "kisialiou"), "Ice") == [pieces]


@pytest.mark.parametrize(
    ("config", "pieces"),
    [
        ({"do_lower_case": True}, [["cafe"], ["中", "文"]]),
        ({"do_lower_case": True, "strip_accents": None}, [["cafe"], ["中", "文"]]),
        ({"do_lower_case": True, "strip_accents": False}, [["café"], ["中", "文"]]),
        ({"do_lower_case": False, "strip_accents": True}, [["Cafe"], ["中", "文"]]),
        ({"do_lower_case": False, "tokenize_chinese_chars": False}, [["Café"], ["中文"]]),
    ],
)
def test_accents_and_chinese_are_treated_as_the_config_says(
    tmp_path: Path, config: dict[str, Any], pieces: list[list[str]]
) -> None:
    rows = [*CASED_ROWS, "café", "cafe", "Café", "Cafe", "中", "文", "中文"]
    write_rows(tmp_path / "vocab.txt", rows)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    tokenizer = load_tokenizer(tmp_path)
    assert spelled(tokenizer, "Café", "中文") == pieces
    (tmp_path / "saved").mkdir()
    save_tokenizer(tmp_path / "saved", tokenizer)
    again = load_tokenizer(tmp_path / "saved")
    assert again.encode(["Café", "中文"]) == tokenizer.encode(["Café", "中文"])
    assert tokenizer_digest(again) == tokenizer_digest(tokenizer)


# --- SentencePiece


@pytest.fixture(params=MODELS)
def spiece(
    request: pytest.FixtureRequest, spiece_models: dict[str, Path]
) -> SentencePieceTokenizer:
    return SentencePieceTokenizer(spiece_models[request.param])


def test_words_become_their_pieces(spiece: SentencePieceTokenizer) -> None:
    river, ice = spiece.encode(["river", "ice"])
    assert river
    assert ice
    assert spiece.encode(["ice", "river", "ice"]) == [ice, river, ice]
    assert spiece.unk_id not in river + ice


def test_markers_keep_their_ids_or_follow_the_last_piece(spiece_models: dict[str, Path]) -> None:
    plain = SentencePieceTokenizer(spiece_models["plain-bpe"])
    last = plain.marker_id("[Q]") - 1
    assert plain.piece_id("[Q]") is None
    assert [plain.marker_id(m) for m in MARKERS] == list(range(last + 1, plain.vocab_size))
    named = SentencePieceTokenizer(spiece_models["markers"])
    assert [named.marker_id(m) for m in MARKERS] == [named.piece_id(m) for m in MARKERS]
    assert named.vocab_size > max(named.marker_id(m) for m in MARKERS)
    assert named.marker_id("[Other=1]") == named.unk_id


def test_the_special_pieces(spiece: SentencePieceTokenizer) -> None:
    special = (spiece.cls_id, spiece.sep_id, spiece.pad_id)
    assert special == tuple(map(spiece.piece_id, ("[CLS]", "[SEP]", "<pad>")))


@pytest.mark.parametrize("around", ["{}", "a{}", "{}b", "\u2581{}", "{0}{0}"])
def test_text_that_spells_a_special_piece_is_taken_apart(
    spiece: SentencePieceTokenizer, around: str
) -> None:
    for word in (*SPECIAL_WORDS, *MARKERS, FULLWIDTH_SEP):
        (pieces,) = spiece.encode([around.format(word)])
        assert pieces
        assert meanings(spiece).isdisjoint(pieces), word


@few
@given(st.lists(st.one_of(any_words, st.sampled_from(MARKERS)), max_size=3))
def test_no_text_becomes_a_special_spiece(spiece_models: dict[str, Path], parts: list[str]) -> None:
    for path in spiece_models.values():
        tokenizer = SentencePieceTokenizer(path)
        (pieces,) = tokenizer.encode(["".join(parts)])
        assert meanings(tokenizer).isdisjoint(pieces)


@pytest.mark.parametrize("word", BLANK_WORDS)
def test_a_blank_word_has_no_spieces(spiece: SentencePieceTokenizer, word: str) -> None:
    assert spiece.encode([word, "ice"])[0] == ()


def test_no_sentencepiece_model(tmp_path: Path) -> None:
    path = tmp_path / "spiece.model"
    path.write_bytes(b"not a model")
    with pytest.raises(ValueError, match=r"spiece\.model is not a SentencePiece model"):
        SentencePieceTokenizer(path)
    text = iter(["ice river water"] * 20)
    SentencePieceTrainer.train(
        sentence_iterator=text, model_prefix=str(tmp_path / "bare"), vocab_size=16,
        hard_vocab_limit=False, bos_id=-1, eos_id=-1, minloglevel=2,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"has none of the pieces \[CLS\], <s>, <cls>: train it"):
        SentencePieceTokenizer(tmp_path / "bare.model")


# --- the folder's tokenizer


def test_a_folder_is_known_by_its_files(tmp_path: Path, spiece_models: dict[str, Path]) -> None:
    with pytest.raises(FileNotFoundError, match=r"expected vocab\.txt .* or spiece\.model"):
        load_tokenizer(tmp_path)
    (tmp_path / "spiece.model").write_bytes(spiece_models["markers"].read_bytes())
    assert isinstance(load_tokenizer(tmp_path), SentencePieceTokenizer)
    write_rows(tmp_path / "vocab.txt", bert_rows())
    assert type(load_tokenizer(tmp_path)) is WordPieceTokenizer
    assert type(load_tokenizer(tmp_path / "vocab.txt", "bert-joint")) is OriginalWordPieceTokenizer
    assert isinstance(load_tokenizer(tmp_path / "spiece.model"), SentencePieceTokenizer)


def test_the_originals_know_no_sentencepiece(spiece_models: dict[str, Path]) -> None:
    with pytest.raises(ValueError, match=r"compat 'kisialiou' is for WordPiece only"):
        load_tokenizer(spiece_models["markers"], "kisialiou")


def test_a_config_that_is_no_json_object(tmp_path: Path) -> None:
    write_rows(tmp_path / "vocab.txt", CASED_ROWS)
    for text, problem in (("{", "is not JSON"), ("[]", "holds list, expected a JSON object")):
        (tmp_path / "tokenizer_config.json").write_text(text)
        with pytest.raises(ValueError, match=rf"tokenizer_config\.json {problem}"):
            load_tokenizer(tmp_path)


def test_the_digest_knows_kind_case_and_content(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "vocab.txt", CASED_ROWS)
    made = [WordPieceTokenizer(path, True), WordPieceTokenizer(path, False),
            WordPieceTokenizer(path, True, False), OriginalWordPieceTokenizer(path)]  # fmt: skip
    digests = {tokenizer_digest(tokenizer) for tokenizer in made}
    assert tokenizer_digest(WordPieceTokenizer(path, True)) in digests
    write_rows(path, [*CASED_ROWS, "##ice"])
    assert len({*digests, tokenizer_digest(WordPieceTokenizer(path, True))}) == 5


# --- real data


def test_markers_of_the_real_vocabulary(real_vocab: Path) -> None:
    rows = real_vocab.read_text(encoding="utf-8").split("\n")
    assert tuple(rows[104:311]) == MARKERS
    assert load_tokenizer(real_vocab).vocab_size == 30522


def test_real_pages_word_by_word_and_whole(real_vocab: Path, shared: Path) -> None:
    tokenizer, whole = load_tokenizer(real_vocab), library(real_vocab)
    for name in ("dev/nq-dev.jsonl.gz", "pages/nq-pages.jsonl.gz"):
        for _, example in itertools.islice(read_records(str(shared / name)), 0, 40, 8):
            assert isinstance(example, Example)
            pieces = itertools.chain.from_iterable(tokenizer.encode(example.tokens))
            assert (
                list(pieces) == whole.encode(" ".join(example.tokens), add_special_tokens=False).ids
            )
