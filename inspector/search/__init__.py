"""Search for the best layout of a model on a machine: candidates, their ranking, and the result."""
