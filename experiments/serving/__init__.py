"""Measures ``nq serve``: throughput, latency, and a mixture of good and broken requests."""
