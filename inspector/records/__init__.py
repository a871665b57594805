"""Frozen records and their JSON: Snapshot, assessment, the run of a program."""
