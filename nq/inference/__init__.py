"""Windows in, scores out: profiles, engines, batches, and the scorers around them."""
