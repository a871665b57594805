"""Differences between Snapshots: per array, per question, and in sentences that name causes."""

from inspector.compare.difference.aligned import aligned
from inspector.compare.difference.array_differences import ArrayDifference, arrays
from inspector.compare.difference.caveats import Caveat, caveats
from inspector.compare.difference.comparison_json import to_json
from inspector.compare.difference.question import Answer, Question
from inspector.compare.difference.questions import questions
from inspector.compare.difference.sentences import sentences
from inspector.compare.difference.spec_rows import SpecRow, spec_rows
from inspector.compare.difference.splits import without_idle_axes
