"""Facts about compiled programs, from their HLO text: collectives, FLOPs, bytes, names of operations."""
