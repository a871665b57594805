"""Subjects of the guide pages: assembly, processes, moves between layouts, variants, tutorials."""
