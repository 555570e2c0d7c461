"""What a person reads: answers on their page, error analysis, the page of a run, compared runs."""
