"""Scoring of predictions; independent of the pipeline that made them."""
