"""Tokenizers over made-up vocabularies, and the real ones where they are."""

import random
from pathlib import Path
from typing import Any

import pytest
from sentencepiece import SentencePieceTrainer

from nq.preprocess.tokenizers.base import MARKERS
from nq.preprocess.tokenizers.wordpiece import OriginalWordPieceTokenizer, WordPieceTokenizer
from tests.preprocess.synthetic_examples import LETTERS, WORDS, bert_rows
from tests.support.tiny_models import write_vocab


@pytest.fixture(scope="session")
def vocab_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vocab(tmp_path_factory.mktemp("vocab") / "vocab.txt", bert_rows())


@pytest.fixture(scope="session")
def wordpiece(vocab_file: Path) -> WordPieceTokenizer:
    return WordPieceTokenizer(vocab_file)


@pytest.fixture(scope="session")
def original(vocab_file: Path) -> OriginalWordPieceTokenizer:
    return OriginalWordPieceTokenizer(vocab_file)


@pytest.fixture(scope="session")
def spiece_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Small real SentencePiece models, by what they hold.

    plain: [CLS] and [SEP] as control pieces, no markers. markers: the markers as
    user-defined pieces. loose: [CLS], [SEP] and <mask> as user-defined pieces, which
    SentencePiece finds in any text; blanks are kept.
    """
    folder = tmp_path_factory.mktemp("spiece")
    chance = random.Random(5)
    words = [*(word.replace("##", "") for word in WORDS), *LETTERS]
    text = [" ".join(chance.choices(words, k=9)) for _ in range(300)]
    control = {"control_symbols": ["[CLS]", "[SEP]"]}
    loose = {
        "user_defined_symbols": ["[CLS]", "[SEP]", "<mask>"],
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
    }
    kinds: dict[str, dict[str, Any]] = {
        "plain-unigram": {"model_type": "unigram", **control},
        "markers": {"model_type": "unigram", **control, "user_defined_symbols": [*MARKERS]},
        "loose": {"model_type": "unigram", **loose},
    }
    for name, options in kinds.items():
        SentencePieceTrainer.train(
            sentence_iterator=iter(text),
            model_prefix=str(folder / name),
            vocab_size=90 + len(MARKERS) * (name == "markers"),
            hard_vocab_limit=False,
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            minloglevel=2,
            **options,
        )
    return {name: folder / f"{name}.model" for name in kinds}
