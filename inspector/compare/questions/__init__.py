"""The questions that the Board asks every Snapshot, and their answers relative to a baseline."""

from inspector.compare.question import Answer, Question
from inspector.compare.questions.questions import questions
