"""Comparison of Snapshots and layouts: differences, the Board, paired timing, accuracy, search."""
