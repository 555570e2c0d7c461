"""What strangers and accidents do to ``nq``: mutated records, broken requests, kills."""
