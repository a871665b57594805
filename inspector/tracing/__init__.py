"""The model of a layout, built and traced with JAX: its arrays, errors and MLIR modules."""
