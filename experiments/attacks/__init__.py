"""What strangers and accidents do to ``nq``: records, model folders, files of runs, requests."""
