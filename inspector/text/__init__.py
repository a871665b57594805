"""Words for quantities, mesh axes, names and errors."""
