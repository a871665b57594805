"""Predict the time and memory of a compiled program on a chip."""
