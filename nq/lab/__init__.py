"""Profiles of a model against each other: measurement, verdict, page, and records in MLflow."""
