"""Readers make a Snapshot from the files of a real job: `inspector.files.sources.READERS` lists them.

No reader imports JAX or unpickles anything. Limits on sizes and counts protect the worker from hostile
files. All functions raise `InvalidInput` for a file that they cannot read, with one sentence that names it.
"""
