"""What differs between Snapshots: array by array, question by question, and in sentences that name causes."""

from inspector.compare.difference.answers import Answer, Question
from inspector.compare.difference.array_differences import ArrayDifference, arrays
from inspector.compare.difference.full import to_json
from inspector.compare.difference.questions import questions
from inspector.compare.difference.reservations import reservations
from inspector.compare.difference.sentences import sentences
from inspector.compare.difference.spec_rows import SpecRow, spec_rows
from inspector.compare.difference.splitting import without_idle_axes

__all__ = [
    "Answer",
    "ArrayDifference",
    "Question",
    "SpecRow",
    "arrays",
    "questions",
    "reservations",
    "sentences",
    "spec_rows",
    "to_json",
    "without_idle_axes",
]
