"""Studies: how the bundled sample is made, what speed and memory are."""
