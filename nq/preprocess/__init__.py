"""From examples to TFRecords: contexts, windows, features, targets; job.py runs them in Beam."""
