"""Tokenizers: words to pieces, and markers that no text can spell."""

import itertools
import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from nq.model.checkpoint import save_tokenizer
from nq.preprocess.tokenizers.base import MARKERS, Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.preprocess.tokenizers.wordpiece import (
    OriginalWordPieceTokenizer,
    WordPieceTokenizer,
    read_vocab,
)
from tests.preprocess.synthetic_examples import WORDS, any_words, bert_rows
from tests.support.tiny_models import write_vocab

CASED_ROWS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "Ice", "ice", "i", "##ce", "##E"]


def spelled(tokenizer: Tokenizer, *words: str) -> list[list[str]]:
    """Returns the pieces of each word by their spelling."""
    spellings = {i: piece for piece, i in tokenizer._ids.items()}
    return [[spellings[i] for i in pieces] for pieces in tokenizer.encode(words)]


def saved(folder: Path, tokenizer: Tokenizer) -> Tokenizer:
    """Returns a tokenizer that was saved and loaded again, with the same digest."""
    (folder / "saved").mkdir()
    save_tokenizer(folder / "saved", tokenizer)
    again = load_tokenizer(folder / "saved")
    assert again.digest == tokenizer.digest
    return again


def library(vocab_file: Path) -> Library:
    """Returns a tokenizer of whole texts, as a fast BERT tokenizer is set up."""
    backend = Library(WordPiece(read_vocab(vocab_file), unk_token="[UNK]"))
    backend.normalizer = BertNormalizer()
    backend.pre_tokenizer = BertPreTokenizer()
    return backend


@given(st.lists(any_words, max_size=20))
def test_word_by_word_is_the_whole_text(
    wordpiece: WordPieceTokenizer, vocab_file: Path, words: list[str]
) -> None:
    words = [word for word in words if len(word) < 100]
    whole = library(vocab_file).encode(" ".join(words), add_special_tokens=False).ids
    assert list(itertools.chain.from_iterable(wordpiece.encode(words))) == whole


def test_the_cache_is_bounded_and_does_not_change_the_pieces(vocab_file: Path) -> None:
    tokenizer = WordPieceTokenizer(vocab_file)
    tokenizer.max_cached_size = 1000
    for number in range(50):
        words = [f"{number}{'ice' * 30}", "river", f"{number}", "x" * 300, "river"]
        assert tokenizer.encode(words) == WordPieceTokenizer(vocab_file).encode(words)
        cached = tokenizer._cache.items()
        assert sum(len(word) + len(pieces) for word, pieces in cached) < 1000 + 500


def test_threads_share_a_tokenizer(vocab_file: Path) -> None:
    tokenizer = WordPieceTokenizer(vocab_file)
    tokenizer.max_cached_size = 100  # full all the time
    pages = [[f"{word}{i % (n + 7)}" for i, word in enumerate(WORDS)] for n in range(40)]
    expected = [WordPieceTokenizer(vocab_file).encode(page) for page in pages]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(tokenizer.encode, pages * 10)) == expected * 10
    finally:
        sys.setswitchinterval(interval)


def test_markers_are_rows_104_to_310_or_follow_the_last_piece(
    wordpiece: WordPieceTokenizer, tmp_path: Path
) -> None:
    plain = WordPieceTokenizer(write_vocab(tmp_path / "vocab.txt", bert_rows(markers=False)))
    for tokenizer in (wordpiece, plain):
        assert [tokenizer.marker_id(marker) for marker in MARKERS] == list(range(104, 311))
        assert tokenizer.marker_id("[Other=1]") == tokenizer.unk_id
        assert tokenizer.vocab_size == len(bert_rows())
    cased = WordPieceTokenizer(write_vocab(tmp_path / "vocab.txt", CASED_ROWS))
    assert [cased.marker_id(m) for m in MARKERS] == list(range(9, 9 + len(MARKERS)))
    assert cased.vocab_size == 9 + len(MARKERS)


def test_the_vocabulary_of_mpnet(tmp_path: Path) -> None:
    rows = ["<s>", "<pad>", "</s>", "<unk>", *bert_rows(markers=False), "<mask>"]
    tokenizer = load_tokenizer(write_vocab(tmp_path / "vocab.txt", rows))
    assert (tokenizer.cls_id, tokenizer.pad_id, tokenizer.sep_id) == (0, 1, 2)
    assert rows[tokenizer.unk_id] == "[UNK]"
    assert (tokenizer.separators, tokenizer.segments) == (2, False)
    assert [rows[tokenizer.marker_id(m)] for m in MARKERS[:2]] == ["[unused99]", "[unused100]"]
    assert tokenizer.vocab_size == len(rows)
    for word in ("<s>", "</s>", "<pad>", "<mask>", "<unk>", *MARKERS):
        assert not {0, 1, 2, 3, len(rows) - 1} & set(tokenizer.encode([word])[0])
    rows = [*bert_rows(), "<s>", "<pad>", "</s>"]  # a BERT's, with these pieces at the end
    bert = load_tokenizer(write_vocab(tmp_path / "vocab.txt", rows))
    assert rows[bert.cls_id] == "[CLS]" and (bert.separators, bert.segments) == (1, True)


@pytest.mark.parametrize("end", ["\r\n", "\n\n\n", "\r\n \r\n", ""])
def test_line_ends_blank_last_lines_and_repeated_pieces(tmp_path: Path, end: str) -> None:
    path = tmp_path / "vocab.txt"
    between = "\r\n" if "\r" in end else "\n"
    path.write_bytes(b"\xef\xbb\xbf" + (between.join([*CASED_ROWS, "ice"]) + end).encode())
    assert read_vocab(path) == {row: i for i, row in enumerate(CASED_ROWS)} | {"ice": 9}


@pytest.mark.parametrize(
    ("config", "pieces"),
    [
        ({}, [["Café"], ["中", "文"]]),
        ({"do_lower_case": None}, [["Café"], ["中", "文"]]),
        ({"do_lower_case": True}, [["cafe"], ["中", "文"]]),
        ({"do_lower_case": True, "strip_accents": False}, [["café"], ["中", "文"]]),
        ({"do_lower_case": False, "strip_accents": True}, [["Cafe"], ["中", "文"]]),
        ({"do_lower_case": False, "tokenize_chinese_chars": False}, [["Café"], ["中文"]]),
    ],
)
def test_text_is_prepared_as_the_config_says(
    tmp_path: Path, config: dict[str, Any], pieces: list[list[str]]
) -> None:
    rows = [*CASED_ROWS, "café", "cafe", "Café", "Cafe", "中", "文", "中文"]
    write_vocab(tmp_path / "vocab.txt", rows)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    tokenizer = load_tokenizer(tmp_path)
    assert spelled(tokenizer, "Café", "中文") == pieces
    assert saved(tmp_path, tokenizer).encode(["Café", "中文"]) == tokenizer.encode(["Café", "中文"])


@pytest.mark.parametrize("source", ["added_tokens.json", "tokenizer_config.json", "tokenizer.json"])
def test_tokens_that_were_added_are_found_inside_text(source: str, tmp_path: Path) -> None:
    pieces = [*CASED_ROWS, "x", "##x"]
    write_vocab(tmp_path / "vocab.txt", pieces)
    tokens: list[dict[str, Any]] = [
        {"id": len(pieces), "content": "<ent>", "special": True},
        {"id": len(pieces) + 1, "content": "covid19"},
    ]
    values = {
        "added_tokens.json": {t["content"]: t["id"] for t in tokens},
        "tokenizer_config.json": {"added_tokens_decoder": {t["id"]: t for t in tokens}},
        "tokenizer.json": {"added_tokens": tokens},
    }
    (tmp_path / source).write_text(json.dumps(values[source]), encoding="utf-8")
    tokenizer = load_tokenizer(tmp_path / "vocab.txt")
    assert spelled(tokenizer, "xcovid19ice") == [["x", "covid19", "ice"]]
    assert tokenizer.piece_id("covid19") == len(pieces) + 1
    is_special = source != "added_tokens.json"  # which has no flags
    assert (["<ent>"] in spelled(tokenizer, "<ent>")) != is_special
    text = tokenizer.encode_text("ice, covid19x")
    assert text.chars.tolist()[-2:] == [[5, 12], [12, 13]]
    words = ["xcovid19ice", "<ent>"]
    assert saved(tmp_path, tokenizer).encode(words) == tokenizer.encode(words)


def test_a_saved_sentencepiece_is_the_same(spiece_models: dict[str, Path], tmp_path: Path) -> None:
    """Also beside the config of another family."""
    shutil.copyfile(spiece_models["plain-unigram"], tmp_path / "spiece.model")
    tokenizer, text = load_tokenizer(tmp_path), "the  river, (ice)\nthe "
    again = saved(tmp_path, tokenizer)
    (tmp_path / "saved" / "config.json").write_text('{"model_type": "bert"}')
    for one in (again, load_tokenizer(tmp_path / "saved")):
        pieces, expected = one.encode_text(text), tokenizer.encode_text(text)
        assert (pieces.ids, pieces.chars.tolist()) == (expected.ids, expected.chars.tolist())


def test_markers_of_sentencepiece_keep_their_ids_or_follow_the_last_piece(
    spiece_models: dict[str, Path],
) -> None:
    plain = load_tokenizer(spiece_models["plain-unigram"])
    last = plain.marker_id("[Q]") - 1
    assert plain.piece_id("[Q]") is None
    assert [plain.marker_id(m) for m in MARKERS] == list(range(last + 1, plain.vocab_size))
    named = load_tokenizer(spiece_models["markers"])
    assert [named.marker_id(m) for m in MARKERS] == [named.piece_id(m) for m in MARKERS]
    assert named.vocab_size > max(named.marker_id(m) for m in MARKERS)
    assert named.marker_id("[Other=1]") == named.unk_id
    for tokenizer in map(load_tokenizer, spiece_models.values()):
        special = (tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id)
        assert special == tuple(map(tokenizer.piece_id, ("[CLS]", "[SEP]", "<pad>")))
        river, ice, capital, accent = tokenizer.encode(["river", "ice", "River", "rivér"])
        assert tokenizer.encode(["ice", "river", "ice"]) == [ice, river, ice]
        assert tokenizer.unk_id not in river + ice
        assert tokenizer.unk_id in capital and tokenizer.unk_id in accent  # both stay in text


def rows(*pieces: str) -> str:
    return "".join(f"{piece}\n" for piece in pieces)


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("vocab.txt", rows("[PAD]", "[UNK]", "ice"), r"vocab\.txt .*\[CLS\]"),
        ("spiece.model", "no", r"spiece\.model "),
        ("tokenizer_config.json", '{"do_lower_case": 1}', "do_lower_case"),
        ("tokenizer.json", '{"model": {"type": "BPE", "vocab": 3}}', r"tokenizer\.json "),
        ("vocab.json", '{"a": 0}', r"vocab\.json "),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, text: str, named: str) -> None:
    if name == "tokenizer_config.json":
        write_vocab(tmp_path / "vocab.txt", CASED_ROWS)
    (tmp_path / name).write_text(text, encoding="latin-1")
    (tmp_path / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    with pytest.raises(ValueError, match=named):
        load_tokenizer(tmp_path)


def test_the_digest_depends_on_kind_case_and_content(tmp_path: Path) -> None:
    path = write_vocab(tmp_path / "vocab.txt", CASED_ROWS)
    tokenizers = [WordPieceTokenizer(path, True), WordPieceTokenizer(path, False),
            WordPieceTokenizer(path, True, False), OriginalWordPieceTokenizer(path)]  # fmt: skip
    digests = {tokenizer.digest for tokenizer in tokenizers}
    assert WordPieceTokenizer(path, True).digest in digests
    write_vocab(path, [*CASED_ROWS, "##ice"])
    assert len({*digests, WordPieceTokenizer(path, True).digest}) == 5
