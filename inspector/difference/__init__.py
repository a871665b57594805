"""What differs between Snapshots: array by array, question by question, and in sentences that name causes."""

from inspector.difference.answers import Answer, Question
from inspector.difference.array_differences import ArrayDifference, arrays
from inspector.difference.full import to_json
from inspector.difference.questions import questions
from inspector.difference.reservations import reservations
from inspector.difference.sentences import sentences
from inspector.difference.spec_rows import SpecRow, spec_rows
from inspector.difference.splitting import without_idle_axes

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
