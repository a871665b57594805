"""Facts about a compiled program, read from its text: collectives, FLOPs, bytes, places in the model."""
