"""The official evaluation of Natural Questions; imports nothing else of nq."""
