"""Snapshot, JSON, sharding arithmetic and text formatting: what every other package builds on."""
