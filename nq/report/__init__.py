"""What a person reads: the result of a run, error analysis, the page of a run, compared runs."""
