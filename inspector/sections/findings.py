"""Findings of the audit, ranked, with the change that fixes each."""

from __future__ import annotations

from collections.abc import Sequence

from inspector.checks import audit
from inspector.checks.audit import Change
from inspector.core.formatting import bytes_text, counted
from inspector.core.snapshot import Finding, Level, Snapshot
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

KINDS: dict[Level, NoticeKind] = {"error": "error", "warning": "warning", "note": "info"}
LEVELS: tuple[Level, ...] = ("error", "warning", "note")


def section(snapshot: Snapshot, most: int = 40) -> Section:
    """Return the findings of a Snapshot, identical layers as one finding, the most serious first."""
    ranked = sorted(
        audit.merged_by_logical_axis(snapshot.findings),
        key=lambda one: (LEVELS.index(one.level), -(one.bytes or 0)),
    )
    blocks: list[Block] = [summary(ranked, snapshot), *not_checked(snapshot)]
    if ranked:
        blocks.append(Listing(tuple(map(sentence, ranked[:most]))))
    if len(ranked) > most:
        blocks.append(text(more_text(len(ranked) - most, "finding"), quiet=True))
    return Section("findings", "Findings", tuple(blocks))


def summary(findings: Sequence[Finding], snapshot: Snapshot) -> Notice | Text:
    """Return the number of findings by level in one sentence."""
    if snapshot.mesh is None and not findings:
        return notice("unknown", "Nothing can be checked, because the mesh is unknown.")
    counts = {level: sum(one.level == level for one in findings) for level in LEVELS}
    if not counts["error"] and not counts["warning"]:
        notes = f" {counted(counts['note'], 'note')}." if counts["note"] else ""
        if snapshot.mesh is None:
            return text(Strong(notes.strip()))
        return Notice("success", (f"No problems found.{notes}",))
    words = [counted(count, level) for level, count in counts.items() if count]
    return text(Strong(f"{', '.join(words)}."), " Errors first, then by bytes per device.")


def not_checked(snapshot: Snapshot) -> tuple[Text, ...]:
    """Return what a check of this Snapshot leaves out, because facts are unknown; empty if nothing."""
    return tuple(text(sentence, quiet=True) for sentence in audit.gaps(snapshot))


def sentence(finding: Finding) -> tuple[Inline, ...]:
    """Return a finding in one line: level, message, array and bytes."""
    array = ""
    if finding.array is not None and finding.array not in finding.message:
        array = f" ({finding.array})"
    saved = "" if finding.bytes is None else f" · {bytes_text(finding.bytes)}"
    return (Mark(finding.level, KINDS[finding.level]), f": {finding.message}{array}{saved}")


def title(finding: Finding) -> str:
    """Return the code of a finding as a title: `Replicated parameter`."""
    return finding.code.replace("-", " ").capitalize()


def saving(finding: Finding) -> str:
    """Return the most that a fix saves in the arrays of the finding, or an empty string."""
    if not finding.bytes:
        return ""
    arrays = "" if finding.count is None else f" in {counted(finding.count, 'array')}"
    return f"saves up to {bytes_text(finding.bytes)} per device{arrays}"


def fix(change: Change) -> tuple[Inline, ...]:
    """Return the smallest change that fixes a finding, and its saving."""
    if change.saves is None:
        saved = "The saving is unknown, because JAX rejects the layout as it is."
    elif not change.saves:
        saved = "The train state needs as much memory as before."
    else:
        saved = (
            f"Saves {bytes_text(change.saves)} of train state per device in "
            f"{counted(change.arrays, 'array')} (planned)."
        )
    return ("Fix: ", *with_code(change.words), f". {saved}")


def audited(
    snapshot: Snapshot, findings: Sequence[tuple[Finding, Change | None]]
) -> tuple[Block, ...]:
    """Return findings with their fixes, one section each, or the list of checks if there are none."""
    checked = audit.questions(snapshot)
    if not findings and checked:
        said = text("No problems found. Checked:")
        return (said, listing(*checked), *not_checked(snapshot))
    blocks: list[Block] = [*not_checked(snapshot)]
    for number, (finding, change) in enumerate(findings):
        heading = f"{finding.level}: {finding.code}"
        if finding.bytes:
            heading += f", {saving(finding)}"
        inside: list[Block] = [text(finding.message)]
        if change is not None:
            inside.append(text(*fix(change)))
        blocks.append(Section(f"finding-{number}", heading, tuple(inside)))
    return tuple(blocks)


def checked() -> Folded:
    """Return the questions of the audit and its threshold."""
    note = "Waste below 1% of the train state per device is not reported. Identical layers are one finding."
    return Folded("Checks", (listing(*audit.questions()), text(note, quiet=True)))
