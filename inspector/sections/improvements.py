"""What improves a layout, in one ranked list: findings of the audit, and changes that lower its cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from inspector.assessment import assess
from inspector.checks import audit
from inspector.checks.audit import Change
from inspector.core.formatting import counted
from inspector.core.snapshot import Effect, Finding, Snapshot
from inspector.machines.hardware import Chip
from inspector.sections import effects, findings
from inspector.sections.section import (
    Block,
    Folded,
    Inline,
    Listing,
    Mark,
    Notice,
    NoticeKind,
    Section,
    Strong,
    Text,
    listing,
    more_text,
    notice,
    text,
    with_code,
)

ORDER = (
    "Errors first, then by the step time or, if it is unknown, the share of memory or work that a change "
    "saves."
)
_MOST = 40


@dataclass(frozen=True)
class Improvement:
    """A finding, or a change of the layout that lowers its cost.

    Exactly one of `finding` and `effect` is not None.

    Attributes:
      label: what it is, in one word: the level of a finding, or `change`.
      gain: what it saves, with its sign or unit. An empty string if that is unknown.
      message: what is wrong, or what else the change alters.
    """

    label: str
    kind: NoticeKind
    title: str
    gain: str
    message: str
    finding: Finding | None = None
    effect: Effect | None = None

    @property
    def is_remark(self) -> bool:
        """Return whether it is a note without a known gain."""
        return self.label == "note" and not self.gain


def ranked(snapshot: Snapshot, listed: Sequence[Finding], chip: Chip | None = None) -> list[Improvement]:
    """Return findings and improving effects in the order of `ORDER`, those without a known gain last.

    Args:
      snapshot: its effects, if they are known, are added.
      listed: findings of the Snapshot.
      chip: the chip of a Snapshot without one.
    """
    rows = [(_rank(finding, snapshot), of_finding(finding)) for finding in listed]
    if snapshot.effects is not None:
        assessed = assess(snapshot, chip)
        for effect, seconds, size in effects.improving(snapshot.effects):
            gain, *rest = effects.altered(snapshot.effects, effect, assessed)
            message = f"Also: {'; '.join(rest)}." if rest else ""
            said = Improvement("change", "success", effect.label, gain, message, effect=effect)
            share = audit.share_of_memory(size, snapshot)
            rows.append(((1, -seconds, 0.0) if seconds else (2, -share, -size), said))
    return [improvement for _, improvement in sorted(rows, key=lambda row: row[0])]


def _rank(finding: Finding, snapshot: Snapshot) -> tuple[int, float, float]:
    share = audit.weight(finding, snapshot)
    group = 2 if share else 3 + (finding.level == "note")
    return 0 if finding.level == "error" else group, -share, -(finding.bytes or 0)


def of_finding(finding: Finding) -> Improvement:
    """Return the words of a finding."""
    return Improvement(
        finding.level,
        findings.KINDS[finding.level],
        findings.title(finding),
        findings.saving(finding),
        finding.message,
        finding=finding,
    )


def section(snapshot: Snapshot, chip: Chip | None = None, most: int = _MOST) -> Section:
    """Return the ranked list, with the findings of identical layers as one, and the effects folded below."""
    rows = _merged(snapshot, chip)
    blocks: list[Block] = [summary(rows, snapshot, chip), *findings.not_checked(snapshot)]
    if rows:
        blocks.append(Listing(tuple(map(sentence, rows[:most]))))
    if len(rows) > most:
        blocks.append(text(more_text(len(rows) - most, "improvement"), quiet=True))
    if snapshot.effects is not None and snapshot.effects.changes:
        inside = effects.details(snapshot.effects, assess(snapshot, chip))
        blocks.append(Folded(effects.all_heading(snapshot.effects), inside))
    return Section("findings", "Findings and improvements", tuple(blocks))


def count_text(snapshot: Snapshot, chip: Chip | None = None) -> str:
    """Return the number of rows of `section` by what they are: `2 warnings, 1 note`."""
    rows = _merged(snapshot, chip)
    return ", ".join(_counts(rows)) or f"nothing found by {findings.checks_text(snapshot)}"


def _merged(snapshot: Snapshot, chip: Chip | None) -> list[Improvement]:
    return ranked(snapshot, audit.merged_by_logical_axis(snapshot.findings), chip)


def summary(rows: Sequence[Improvement], snapshot: Snapshot, chip: Chip | None = None) -> Notice | Text:
    """Return the number of findings by level, and of changes; without any, what was checked."""
    if snapshot.mesh is None and not rows:
        return notice("unknown", "Nothing can be checked, because the mesh is unknown.")
    if not rows:
        return notice("info", findings.nothing_found(snapshot, assess(snapshot, chip).basis))
    return text(Strong(f"{', '.join(_counts(rows))}."), f" {ORDER}" if len(rows) > 1 else "")


def _counts(rows: Sequence[Improvement]) -> list[str]:
    labels = Counter(row.label for row in rows)
    words = [counted(labels[level], level) for level in findings.LEVELS if labels[level]]
    if changes := labels["change"]:
        verb = "improves" if changes == 1 else "improve"
        words.append(f"{counted(changes, 'change')} that {verb} the layout")
    return words


def sentence(improvement: Improvement) -> tuple[Inline, ...]:
    """Return an improvement in one line: its label, the message or the change, array and gain."""
    mark = Mark(improvement.label, improvement.kind)
    gain = f" · {improvement.gain}" if improvement.gain else ""
    if improvement.finding is None:
        also = f". {improvement.message}" if improvement.message else ""
        return (mark, f": {improvement.title}{gain}{also}")
    finding = improvement.finding
    array = ""
    if finding.array is not None and finding.array not in finding.message:
        array = f" ({finding.array})"
    return (mark, f": {improvement.message}{array}{gain}")


def audited(snapshot: Snapshot, found: Sequence[tuple[Finding, Change | None]]) -> tuple[Block, ...]:
    """Return the ranked list with the fixes of findings, one section each, or the checks if it is empty."""
    checked = audit.questions(snapshot)
    rows = ranked(snapshot, [finding for finding, _ in found])
    changes = {id(finding): change for finding, change in found}
    if not rows and checked:
        said = text(findings.nothing_found(snapshot, assess(snapshot).basis), " Checked:")
        return (said, listing(*checked), *findings.not_checked(snapshot))
    blocks: list[Block] = [*findings.not_checked(snapshot)]
    for number, row in enumerate(rows):
        if row.finding is None:
            heading, message = f"{row.label}: {row.title}", f"{row.gain}. {row.message}".strip()
        else:
            gain = f", {row.gain}" if row.gain else ""
            heading, message = f"{row.label}: {row.finding.code}{gain}", row.message
        inside: list[Block] = [text(message)]
        if (change := changes.get(id(row.finding))) is not None:
            inside.append(text(*findings.fix(change)))
        elif row.finding is not None and row.finding.remedy is not None:
            inside.append(text("Fix: ", *with_code(row.finding.remedy)))
        blocks.append(Section(f"finding-{number}", heading, tuple(inside)))
    return tuple(blocks)
