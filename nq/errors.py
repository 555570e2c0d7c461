"""The one exception for a run that has to stop."""


class Error(RuntimeError):
    """A run cannot go on; the text says why and what to do next, and is all a person sees."""
