"""Preprocessing: questions and pages become windows of piece ids.

The stages are plain functions: contexts, windows, features, targets. ``prepare`` runs them over
files and keeps the windows in a folder; ``nq.beam`` has them as Beam transforms.
"""
