"""nq: answers Natural Questions from whole Wikipedia pages with a BERT-Joint model."""

__version__ = "0.1.0"
