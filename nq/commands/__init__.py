"""The commands: one file for each, thin callers of the Python API."""
