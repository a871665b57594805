"""The results of a check of one Snapshot, in lines: the verb `check` and `inspector.testing` report it."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.checks import lock_file
from inspector.checks.lock_changes import changes
from inspector.checks.lock_file import LockFile
from inspector.checks.policy import Policy
from inspector.core.formatting import counted
from inspector.core.snapshot import Snapshot


@dataclass(frozen=True)
class Checked:
    """Lines about violated rules or changes, about what cannot be checked, and notes."""

    violations: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __add__(self, other: Checked) -> Checked:
        return Checked(
            self.violations + other.violations, self.unknown + other.unknown, self.notes + other.notes
        )


def with_policy(snapshot: Snapshot, policy: Policy) -> Checked:
    """Check the rules of a policy."""
    outcomes = policy.check(snapshot)
    return Checked(
        tuple(f"{outcome.rule}: {broken.sentence}" for outcome in outcomes for broken in outcome.violations),
        tuple(f"{outcome.rule}: {outcome.unknown}" for outcome in outcomes if outcome.unknown is not None),
        (f"rules that hold: {sum(outcome.holds for outcome in outcomes)} of {len(outcomes)}",),
    )


def with_lock(snapshot: Snapshot, before: LockFile, path: str) -> Checked:
    """List the changes since a lock file. The last note has their number, and a sentence about them."""
    found = changes(before, lock_file.locked(snapshot))
    count = f"{counted(len(found.changed), 'change')} from {path}"
    last = count if found.summary is None else f"{count}: {found.summary}"
    return Checked(found.changed, found.unknown, (*found.noted, last))
