"""From scores to predictions: pairs of positions, the decision rules, their thresholds."""
