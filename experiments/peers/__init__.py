"""Compares our engines with other libraries on the same weights and the same windows."""
