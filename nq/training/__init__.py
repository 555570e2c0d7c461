"""Training: which windows each step sees, and the loop over the steps."""
