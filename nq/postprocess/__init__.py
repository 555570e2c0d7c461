"""Postprocessing: the scores of all windows of an example in, one prediction out."""
