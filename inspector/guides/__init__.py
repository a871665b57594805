"""Subjects of the guide pages: assembly, processes, restoring checkpoints, variants, tutorials."""
