"""Differences between Snapshots: per array, per PartitionSpec, and in sentences that name causes."""

from inspector.compare.difference.array_differences import ArrayDifference, SpecDifference, arrays, spec_rows
from inspector.compare.difference.sentences import sentences
