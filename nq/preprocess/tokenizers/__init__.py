"""Tokenizers: words in, piece ids out, behind one small interface."""
