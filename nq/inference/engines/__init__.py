"""The engines that run a network: one module each, named as in a profile."""
