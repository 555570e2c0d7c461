"""Studies of speed, memory and quality, and the commands that make the sample and the model."""
