"""Tokenizers: words in, piece ids out, behind one small interface."""

NAMES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab-nq.txt",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
    "sentencepiece.model",
    "vocab.json",
)
"""The files by which a folder has a tokenizer; the first one counts."""
FILES = (
    *NAMES,
    "merges.txt",
    "tokenizer_config.json",
    "added_tokens.json",
    "special_tokens_map.json",
)
"""All files of tokenizers."""
