"""The rule that nothing is found that a reviewer should be told."""

from __future__ import annotations

from dataclasses import dataclass

from inspector.checks.policy.fields import Fields
from inspector.checks.policy.outcome import Outcome, Violation, name
from inspector.core.snapshot import Finding, Snapshot

LEVELS = ("note", "warning", "error")  # the mildest first


@dataclass(frozen=True)
class NoFindings:
    """No finding of this level or above: those in the Snapshot, and those of the audit of it.

    Findings whose code is among `excepted` are let through.
    """

    none_from: str
    excepted: tuple[str, ...]
    title: str = "findings"

    def outcome(self, found: Snapshot) -> Outcome:
        meant = LEVELS[LEVELS.index(self.none_from) :]
        violations = tuple(
            Violation(
                f"{finding.level} {name(finding.code)}: {' '.join(finding.message.split())}; "
                f"none from {self.none_from} up may be",
                finding.array,
            )
            for finding in _findings(found)
            if finding.level in meant and finding.code not in self.excepted
        )
        return Outcome(self.title, violations)


def read_no_findings(fields: Fields) -> NoFindings:
    """`none_from`, `except`."""
    fields.require("none_from")
    level = fields.choice("none_from", LEVELS)
    assert level is not None, "a required field is there"
    return NoFindings(level, fields.texts("except") or ())


def _findings(found: Snapshot) -> tuple[Finding, ...]:
    """What the producer found, and what the audit finds that it did not."""
    # The audit looks at all arrays and programs, which only this rule needs.
    from inspector.checks.audit import audit

    told = {(one.code, one.array, one.message) for one in found.findings}
    more = [one for one in audit(found) if (one.code, one.array, one.message) not in told]
    return (*found.findings, *more)
