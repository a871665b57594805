"""Build and trace the model of a layout: its mesh, its sharded arrays, and the errors that JAX raises."""
