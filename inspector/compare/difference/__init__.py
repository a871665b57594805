"""Differences between Snapshots: per array, per PartitionSpec, and in sentences that name causes."""

from inspector.compare.difference.array_differences import ArrayDifference, arrays
from inspector.compare.difference.sentences import sentences
from inspector.compare.difference.spec_rows import SpecRow, spec_rows
