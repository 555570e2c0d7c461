"""Tokenizers: words to pieces, and markers that no text can spell."""

import itertools
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library

from nq.preprocess.tokenizers.base import MARKERS, Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer
from nq.preprocess.tokenizers.wordpiece import OriginalTokenizer, read_vocab
from tests.preprocess.synthetic_examples import (
    FULLWIDTH_SEP,
    ODD_WORDS,
    SPECIAL_WORDS,
    WORDS,
    any_words,
    bert_rows,
)
from tests.preprocess.synthetic_tokenizers import (
    BERT,
    KINDS,
    ROBERTA,
    cased_wordpiece,
    vocabulary,
    write_folder,
)
from tests.support.tiny_models import write_vocab

CASED_ROWS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "Ice", "ice", "i", "##ce", "##E"]
SPECIAL = (*ROBERTA, *BERT)
ODD = (*SPECIAL, *MARKERS, *ODD_WORDS, *SPECIAL_WORDS, FULLWIDTH_SEP)


@given(st.lists(any_words, max_size=20))
def test_word_by_word_is_the_whole_text(wordpiece: Tokenizer, words: list[str]) -> None:
    whole = wordpiece.encode_text(" ".join(words))
    assert list(itertools.chain(*wordpiece.encode(words))) == whole.ids


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


def test_the_cache_is_bounded_and_does_not_change_the_pieces(vocab_file: Path) -> None:
    tokenizer = load_tokenizer(vocab_file)
    tokenizer.max_cached_size = 1000
    for number in range(50):
        words = [f"{number}{'ice' * 30}", "river", f"{number}", "x" * 300, "river"]
        assert tokenizer.encode(words) == load_tokenizer(vocab_file).encode(words)
        cached = tokenizer._cache.items()
        assert sum(len(word) + len(pieces) for word, pieces in cached) < 1000 + 500


def test_threads_share_a_tokenizer(vocab_file: Path) -> None:
    tokenizer = load_tokenizer(vocab_file)
    tokenizer.max_cached_size = 100  # full all the time
    pages = [[f"{word}{i % (n + 7)}" for i, word in enumerate(WORDS)] for n in range(40)]
    expected = [load_tokenizer(vocab_file).encode(page) for page in pages]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(tokenizer.encode, pages * 10)) == expected * 10
    finally:
        sys.setswitchinterval(interval)


def test_markers_are_rows_104_to_310_or_follow_the_last_piece(
    tokenizers: list[Tokenizer], tmp_path: Path
) -> None:
    plain = load_tokenizer(write_vocab(tmp_path / "vocab.txt", bert_rows(markers=False)))
    wordpiece, *others = tokenizers
    for tokenizer in (wordpiece, plain):
        assert [tokenizer.marker_id(marker) for marker in MARKERS] == list(range(104, 311))
        assert tokenizer.marker_id("[Other=1]") == tokenizer.unk_id
        assert tokenizer.vocab_size == len(bert_rows())
    for tokenizer in others:
        first = tokenizer.pieces
        assert [*map(tokenizer.marker_id, MARKERS)] == [*range(first, tokenizer.vocab_size)]
        assert tokenizer.encode(["", "\u00a0", " ", "ice"])[:3] == [(), (), ()]


def test_markers_in_a_file_keep_their_ids(tmp_path: Path) -> None:
    library = cased_wordpiece()
    library.add_special_tokens([*MARKERS])
    tokenizer = load_tokenizer(write_folder(tmp_path, {"tokenizer.json": library}))
    assert [*map(tokenizer.marker_id, MARKERS)] == [*map(library.token_to_id, MARKERS)]


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
def test_line_ends_blank_last_lines_and_repeated_pieces(end: str) -> None:
    between = "\r\n" if "\r" in end else "\n"
    content = b"\xef\xbb\xbf" + (between.join([*CASED_ROWS, "ice"]) + end).encode()
    assert read_vocab(Path("vocab.txt"), content) == {
        row: i for i, row in enumerate(CASED_ROWS)
    } | {"ice": 9}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, ["Café", "中", "文"]),
        ({"do_lower_case": None}, ["Café", "中", "文"]),
        ({"do_lower_case": True}, ["cafe", "中", "文"]),
        ({"do_lower_case": True, "strip_accents": False}, ["café", "中", "文"]),
        ({"do_lower_case": False, "strip_accents": True}, ["Cafe", "中", "文"]),
        ({"do_lower_case": False, "tokenize_chinese_chars": False}, ["Café", "中文"]),
    ],
)
def test_text_is_prepared_as_the_config_says(
    tmp_path: Path, config: dict[str, Any], expected: list[str]
) -> None:
    rows = [*CASED_ROWS, "café", "cafe", "Café", "Cafe", "中", "文", "中文"]
    write_folder(tmp_path, {"vocab.txt": rows, "tokenizer_config.json": config})
    tokenizer = load_tokenizer(tmp_path)
    pieces = list(itertools.chain(*tokenizer.encode(["Café", "中文"])))
    assert [rows[piece] for piece in pieces] == expected
    tokenizer.save(tmp_path)
    again = load_tokenizer(tmp_path)
    assert again.digest == tokenizer.digest
    assert again.encode_text("Café 中文").ids == pieces


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("vocab.txt", "[PAD]\n[UNK]\nice\n", r"vocab\.txt .*\[CLS\]"),
        ("vocab.txt", "[PAD]\n[UNK]\n\xe9\n", r"vocab\.txt is not"),
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
    with pytest.raises(ValueError, match=named):
        load_tokenizer(tmp_path)


def test_the_originals_take_a_wordpiece_of_any_file_and_nothing_else(tmp_path: Path) -> None:
    library: Library = KINDS["wordpiece"]()
    write_folder(tmp_path, {"tokenizer.json": library})
    original = load_tokenizer(tmp_path, "kisialiou")
    assert type(original) is OriginalTokenizer
    assert original.encode(["[SEP]", "The"]) == [(3,), load_tokenizer(tmp_path).encode(["The"])[0]]
    write_folder(tmp_path, {"tokenizer.json": KINDS["unigram"]()})
    with pytest.raises(ValueError, match=r"tokenizer\.json: compat 'kisialiou' is for WordPiece"):
        load_tokenizer(tmp_path, "kisialiou")


def test_the_digest_depends_on_kind_options_and_content(tmp_path: Path) -> None:
    def digest(rows: list[str], compat: str = "ours", **config: bool) -> str:
        write_folder(tmp_path, {"vocab.txt": rows, "tokenizer_config.json": config})
        return load_tokenizer(tmp_path, compat).digest

    rows = vocabulary()
    digests = {
        digest(rows),
        digest(rows, "bert-joint"),
        digest(rows, do_lower_case=False),
        digest(rows, strip_accents=False),
        digest([*rows, "##other"]),
    }
    assert len(digests) == 5
    assert digest(rows, do_lower_case=True) == digest(rows)
