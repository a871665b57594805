"""The audit: findings about a Snapshot, ranked by the share that they cost, with a fix for each.

`checks.CHECKS` is the table of all checks. A new check needs one entry there and one module.
"""

from inspector.audit.checks import (
    CHECKS,
    CODES,
    SNAPSHOT_CHECKS,
    audit,
    audited,
    gaps,
    questions,
    ranked,
    rounded,
    share_of_memory,
    weight,
)
from inspector.audit.fixes import Fix, may_fix, replanned, smallest_change
from inspector.audit.small_messages import CODE as SMALL_MESSAGES
from inspector.audit.unused_rules import LEFT_OUT, left_out_text
from inspector.layout.plan import merged_by_logical_axis
