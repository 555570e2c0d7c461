"""Training: the windows of each step, the loop over the steps, and the whole job."""
