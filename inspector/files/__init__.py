"""Read and write files that may be broken or hostile."""
