"""What a person reads: answers on their page, and the summary of a run."""
