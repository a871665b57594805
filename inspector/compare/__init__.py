"""Comparison of Snapshots: differences, the board, paired timing."""
