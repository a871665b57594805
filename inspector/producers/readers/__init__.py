"""Readers: what a real job left behind, as a Snapshot. Files in, plain records out; no JAX, no pickle.

A module for each kind of file, and beside them what keeps hostile files harmless: limits, archives,
encodings. Every reader raises `InvalidInput` with one sentence that names the file and what is wrong with it.
"""
