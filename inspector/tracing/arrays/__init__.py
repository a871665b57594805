"""Records of arrays: from the leaves of a pytree, and from live arrays of one process or several."""
