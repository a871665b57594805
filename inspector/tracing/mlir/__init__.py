"""Modules of MLIR: traversal, locations, bytecode, and the partitioner of XLA, which takes one."""
