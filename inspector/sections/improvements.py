"""What improves a layout, in one ranked list: findings of the audit, and changes that lower its cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from inspector.assessment import assess
from inspector.checks import audit
from inspector.checks.audit import Change, optimizer_state, replicated
from inspector.core.assessment import MemoryNeed
from inspector.core.formatting import and_text, bytes_text, counted
from inspector.core.remedies import Remedies, Remedy
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
    more_text,
    notice,
    text,
    with_code,
)

_MOST = 40
_MOST_NAMED = 4  # further findings of one mistake
PRELIMINARY = "Preliminary order, by memory and work: what changes do to the step is not known yet."
# Findings of one mistake: arrays that every device holds whole, or more of than of their parameters.
_FAMILIES = dict.fromkeys(replicated.CODES, "Replicated train state") | {
    optimizer_state.NOT_FOLLOWING: "Optimizer state sharded less than its parameters"
}


@dataclass(frozen=True)
class Improvement:
    """A finding, or a change of the layout that lowers its cost.

    Exactly one of `finding`, `effect` and `remedy` is not None.

    Attributes:
      label: its kind in one word: the level of a finding, or `change`.
      gain: the amount that it saves, with its sign or unit. An empty string if that is unknown.
      message: the problem, or the other effects of the change.
      more: further findings of the same mistake, whose bytes are part of `gain`.
    """

    label: str
    kind: NoticeKind
    title: str
    gain: str
    message: str
    finding: Finding | None = None
    effect: Effect | None = None
    more: tuple[Finding, ...] = ()
    remedy: Remedy | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        return () if self.finding is None else (self.finding, *self.more)

    @property
    def is_remark(self) -> bool:
        """Return whether it is a note without a known gain."""
        return self.label == "note" and not self.gain


def ranked(snapshot: Snapshot, listed: Sequence[Finding], chip: Chip | None = None) -> list[Improvement]:
    """Return findings and improving effects: what matters to the layout first, no known gain last.

    Findings of one mistake are one improvement. If a layout does not fit, memory matters most, and otherwise
    the time of a step.

    Args:
      snapshot: its effects, if they are known, are added.
      listed: findings of the Snapshot.
      chip: the chip of a Snapshot without one.
    """
    assessed = assess(snapshot, chip)
    by_memory = assessed.memory is not None and assessed.memory.fits is False
    rows = [(_rank(mistake, snapshot, by_memory), of_mistake(mistake)) for mistake in mistakes(listed)]
    if snapshot.effects is not None:
        for change in effects.improving(snapshot.effects, assessed):
            gain, *rest = effects.altered(snapshot.effects, change.effect, assessed)
            message = f"Also: {'; '.join(rest)}." if rest else ""
            said = Improvement("change", "success", change.effect.label, gain, message, effect=change.effect)
            size = change.state if by_memory else change.wire or change.state
            place = _order(change.share, max(size, 0), snapshot, by_memory, timed=bool(change.seconds))
            rows.append((place, said))
    return [improvement for _, improvement in sorted(rows, key=lambda row: row[0])]


def of_remedies(known: Remedies, before: MemoryNeed) -> Improvement | None:
    """Return the change with which the layout fits; None if no change was enough.

    before: the memory that the layout needs without it.
    """
    best = known.best
    if best is None or best.need is None:
        return None
    gain = f"{bytes_text(before.peak_bytes)} → {best.need.text} per device"
    smaller = len(known.tried) - 1
    message = f"With this change, the layout {best.need.fits_text}."
    if smaller:
        message += f" {counted(smaller, 'smaller change')} would not be enough."
    return Improvement("change", "success", best.label, gain, message, remedy=best)


def fitting(known: Remedies, before: MemoryNeed) -> Text:
    """Return the change that makes a layout fit, or the change that comes closest, in a sentence."""
    best, closest = known.best, known.closest
    if best is not None and best.need is not None:
        return text("To make it fit: ", Strong(best.label), f" ({best.need.text}, {best.need.fits_text}).")
    if closest is None or closest.need is None or closest.need.peak_bytes >= before.peak_bytes:
        return text(f"None of the {counted(len(known.tried), 'change')} that were tried needs less memory.")
    return text(
        f"None of the {counted(len(known.tried), 'change')} that were tried makes it fit. The closest: ",
        Strong(closest.label),
        f" ({closest.need.text}).",
    )


def _order(
    work: float, size: float, snapshot: Snapshot, by_memory: bool, *, timed: bool
) -> tuple[int, float]:
    """Return the place of a gain: by memory, by the step if it is known, or by the larger share.

    work: share of the step, or of the work of a device. size: bytes of a device.
    """
    if by_memory and size:
        return 1, -size
    if timed:
        return (2 if by_memory else 1), -work
    share = max(work, audit.share_of_memory(size, snapshot))
    return (2, -share) if share else (3, 0.0)


def _rank(mistake: Sequence[Finding], snapshot: Snapshot, by_memory: bool) -> tuple[int, float]:
    if any(finding.level == "error" for finding in mistake):
        return 0, -audit.weight(mistake[0], snapshot)
    size = sum(finding.bytes or 0 for finding in mistake)
    work = max(1 - 1 / finding.ratio if finding.ratio else 0.0 for finding in mistake)
    place, share = _order(max(work, 0.0), size, snapshot, by_memory, timed=False)
    return place + (place == 3 and mistake[0].level == "note"), share


def mistakes(listed: Sequence[Finding]) -> list[list[Finding]]:
    """Return the findings of one mistake together, the one that saves the most first."""
    groups: dict[object, list[Finding]] = {}
    for number, finding in enumerate(listed):
        family = _FAMILIES.get(finding.code) if finding.bytes and finding.arrays else None
        groups.setdefault(number if family is None else (finding.level, family), []).append(finding)
    # One that names its array explains more than one about many small arrays.
    return [
        sorted(group, key=lambda finding: (len(finding.arrays or ()) != 1, -(finding.bytes or 0)))
        for group in groups.values()
    ]


def of_mistake(mistake: Sequence[Finding]) -> Improvement:
    """Return the words of the findings of one mistake, with the sum of their savings."""
    first, *more = mistake
    alone = of_finding(first)
    if not more:
        return alone
    total = sum(finding.bytes or 0 for finding in mistake)
    arrays = sum(finding.count or 0 for finding in mistake)
    others = [f"{and_text(list(finding.arrays or ()))} ({bytes_text(finding.bytes)})" for finding in more]
    if len(others) > _MOST_NAMED:
        rest = sum(finding.bytes or 0 for finding in more[_MOST_NAMED - 1 :])
        count = len(others) - _MOST_NAMED + 1
        others[_MOST_NAMED - 1 :] = [f"{count} more findings ({bytes_text(rest)})"]
    return replace(
        alone,
        title=_FAMILIES[first.code],
        gain=f"saves up to {bytes_text(total)} per device in {counted(arrays, 'array')}, "
        f"{len(mistake)} findings",
        message=f"{first.message} The same: {and_text(others)}.",
        more=tuple(more),
    )


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
        assessed = assess(snapshot, chip)
        inside = effects.details(snapshot.effects, assessed)
        blocks.append(Folded(effects.all_heading(snapshot.effects, assessed), inside))
    return Section("findings", "Findings and improvements", tuple(blocks))


def count_text(snapshot: Snapshot, chip: Chip | None = None) -> str:
    """Return the number of findings and changes of `section`: `2 warnings, 1 note`."""
    rows = _merged(snapshot, chip)
    return ", ".join(_counts(rows)) or f"nothing found by {findings.checks_text(snapshot)}"


def _merged(snapshot: Snapshot, chip: Chip | None) -> list[Improvement]:
    return ranked(snapshot, audit.merged_by_logical_axis(snapshot.findings), chip)


def summary(
    rows: Sequence[Improvement], snapshot: Snapshot, chip: Chip | None = None, computing: bool = False
) -> Notice | Text:
    """Return the number of findings by level, and of changes; without any, the checks.

    computing: whether the effects of changes are being computed, so that the order is not final.
    """
    assessed = assess(snapshot, chip)
    if not rows:
        return notice("info", findings.nothing_found(snapshot, assessed.basis))
    fits = assessed.memory is None or assessed.memory.fits is not False
    return text(Strong(f"{', '.join(_counts(rows))}."), f" {PRELIMINARY}" if computing and fits else "")


def _counts(rows: Sequence[Improvement]) -> list[str]:
    labels: Counter[str] = Counter()
    for row in rows:
        labels[row.label] += max(len(row.findings), 1)
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
    return (mark, ": ", *with_code(improvement.message), f"{array}{gain}")


def audited(snapshot: Snapshot, found: Sequence[tuple[Finding, Change | None]]) -> tuple[Block, ...]:
    """Return the ranked list with the fixes of findings, one section each; without any, the checks."""
    rows = ranked(snapshot, [finding for finding, _ in found])
    changes = {id(finding): change for finding, change in found}
    if not rows:
        said = text(findings.nothing_found(snapshot, assess(snapshot).basis))
        return (said, *findings.not_checked(snapshot))
    blocks: list[Block] = [*findings.not_checked(snapshot)]
    for number, row in enumerate(rows):
        if row.finding is None:
            heading, message = f"{row.label}: {row.title}", f"{row.gain}. {row.message}".strip()
        else:
            gain = f", {row.gain}" if row.gain else ""
            heading, message = f"{row.label}: {row.finding.code}{gain}", row.message
        inside: list[Block] = [text(*with_code(message))]
        fixes = {
            change.words: findings.fix(change, row.findings)
            for finding in row.findings
            if (change := changes.get(id(finding))) is not None
        }
        inside += [text(*fix) for fix in fixes.values()]
        if not fixes and row.finding is not None and row.finding.remedy is not None:
            inside.append(text("Fix: ", *with_code(row.finding.remedy)))
        blocks.append(Section(f"finding-{number}", heading, tuple(inside)))
    return tuple(blocks)
