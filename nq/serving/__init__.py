"""Answers questions over HTTP: our own server, and the model that MLflow serves."""
