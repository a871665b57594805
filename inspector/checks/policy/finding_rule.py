"""The rule that a Snapshot has no findings of a level or above."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.checks.audit import audited
from inspector.checks.policy.fields import Fields
from inspector.checks.policy.outcome import Outcome, Violation, name
from inspector.core.snapshot import Snapshot

LEVELS = ("note", "warning", "error")  # the least serious first


@dataclass(frozen=True)
class NoFindings:
    """No finding of this level or above, from the Snapshot or its audit. Codes in `excepted` are allowed."""

    none_from: str
    excepted: tuple[str, ...]
    title: str = "findings"

    def outcome(self, snapshot: Snapshot) -> Outcome:
        levels = LEVELS[LEVELS.index(self.none_from) :]
        violations = tuple(
            Violation(
                f"{finding.level} {name(finding.code)}: {' '.join(finding.message.split())} "
                f"(no finding from {self.none_from} allowed)",
                finding.array,
            )
            for finding in audited(snapshot).findings
            if finding.level in levels and finding.code not in self.excepted
        )
        return Outcome(self.title, violations)


def read_findings(fields: Fields) -> NoFindings:
    fields.require("none_from")
    level = fields.choice("none_from", LEVELS)
    return NoFindings(level or LEVELS[0], fields.texts("except") or ())
