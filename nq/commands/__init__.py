"""The commands: one file for each, thin callers of the Python API.

``parser`` returns the parser of a command, ``run`` runs it and returns the exit code. The functions
``add_…`` of ``arguments`` add the options of these names to a parser.
"""
