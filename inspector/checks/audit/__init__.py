"""What a reviewer should be told about a Snapshot, ranked by the bytes that it costs, and what mends it.

A file a question; each knows what it asks (`WHAT`) and gives findings. What is too small to be told is in
`thresholds`.
"""

from inspector.checks.audit.checks import (
    CHECKS,
    CODES,
    audit,
    audited,
    questions,
)
from inspector.checks.audit.mending import Change, remedy, replanned, smallest_change
from inspector.checks.audit.together import together

__all__ = [
    "CHECKS",
    "CODES",
    "Change",
    "audit",
    "audited",
    "questions",
    "remedy",
    "replanned",
    "smallest_change",
    "together",
]
