"""Restore a checkpoint under another layout, and count the bytes that move."""
