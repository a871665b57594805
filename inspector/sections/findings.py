"""The words of findings of the audit, and of the change that fixes each."""

from __future__ import annotations

from inspector.checks import audit
from inspector.checks.audit import Change
from inspector.core.formatting import bytes_text, counted
from inspector.core.snapshot import Finding, Level, Snapshot
from inspector.sections.section import Folded, Inline, NoticeKind, Text, listing, text, with_code

KINDS: dict[Level, NoticeKind] = {"error": "error", "warning": "warning", "note": "info"}
LEVELS: tuple[Level, ...] = ("error", "warning", "note")


def not_checked(snapshot: Snapshot) -> tuple[Text, ...]:
    """Return what a check of this Snapshot leaves out, because facts are unknown; empty if nothing."""
    return tuple(text(sentence, quiet=True) for sentence in audit.gaps(snapshot))


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


def checked() -> Folded:
    """Return the questions of the audit and its threshold."""
    note = "Waste below 1% of the train state per device is not reported. Identical layers are one finding."
    return Folded("Checks", (listing(*audit.questions()), text(note, quiet=True)))
