"""Engines: what computes a network's logits. Each is one file, found by a profile's word."""
