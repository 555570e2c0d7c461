"""What a smaller model gains in speed and loses in micro-F1."""
