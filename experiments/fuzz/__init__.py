"""Mutated records and pages of every input dialect: each becomes an answer or a dead letter."""
