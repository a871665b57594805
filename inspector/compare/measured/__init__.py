"""Measured runs, published ones and those of this machine, and how far predictions are from them."""
