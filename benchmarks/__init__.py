"""Ratios between the inspector and the plainest way to do the same, measured side by side in one run."""
