"""Show Snapshots as the output of a notebook cell, and as text in a terminal."""
