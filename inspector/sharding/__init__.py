"""Arithmetic of meshes, PartitionSpecs, rules, totals and traffic."""
