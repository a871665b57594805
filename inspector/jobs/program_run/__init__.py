"""Run a user's program in its own process, and make Snapshots of its compiled programs.

`launch` imports little, so that the program starts at once.
"""
