"""The panels of a Snapshot: one for each tab, and their content."""
