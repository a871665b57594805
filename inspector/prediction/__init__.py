"""Predict the step time and the memory of a program on a chip."""
