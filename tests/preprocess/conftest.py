"""Tokenizers over made-up vocabularies."""

from pathlib import Path

import pytest

from nq.preprocess.tokenizers.base import Tokenizer
from nq.preprocess.tokenizers.load import load_tokenizer
from tests.preprocess.synthetic_examples import bert_rows
from tests.preprocess.synthetic_tokenizers import KINDS, write_folder
from tests.support.tiny_models import write_vocab


@pytest.fixture(scope="session")
def vocab_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vocab(tmp_path_factory.mktemp("vocab") / "vocab.txt", bert_rows())


@pytest.fixture(scope="session")
def wordpiece(vocab_file: Path) -> Tokenizer:
    return load_tokenizer(vocab_file)


@pytest.fixture(scope="session")
def original(vocab_file: Path) -> Tokenizer:
    return load_tokenizer(vocab_file, "bert-joint")


@pytest.fixture(scope="session")
def tokenizers(wordpiece: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> list[Tokenizer]:
    """Tokenizers of all kinds."""
    folders = [
        write_folder(tmp_path_factory.mktemp(kind), {"tokenizer.json": make()})
        for kind, make in KINDS.items()
    ]
    return [wordpiece, *map(load_tokenizer, folders)]
