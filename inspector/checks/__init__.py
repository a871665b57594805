"""Checks of a Snapshot: audit findings, policies and lock files."""
