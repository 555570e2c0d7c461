"""Predicts how fast a model is on devices that need not be here, whole or split over them."""
