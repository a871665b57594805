"""The words of findings of the audit, and of the change that fixes each."""

from collections.abc import Sequence

from inspector import audit
from inspector.answers.section import Folded, Inline, NoticeKind, Text, listing, text, with_code
from inspector.audit import Fix
from inspector.audit.programs import CONSTANT, DONATION_UNUSED
from inspector.records.assessment import Stage
from inspector.records.snapshot import Finding, Level, Snapshot
from inspector.text.formatting import bytes_text, counted

KINDS: dict[Level, NoticeKind] = {"error": "error", "warning": "warning", "note": "info"}
# The evidence of the checks.
_SEEN: dict[Stage, str] = {
    "planned": "the arrays",
    "partitioned": "the arrays and partitioned programs",
    "compiled": "the arrays and compiled programs",
    "measured": "the arrays, compiled programs and times of whole steps",
}
LEVELS: tuple[Level, ...] = ("error", "warning", "note")


def not_checked(snapshot: Snapshot) -> tuple[Text, ...]:
    """Return what a check of this Snapshot leaves out, because facts are unknown; empty if nothing."""
    return tuple(text(sentence, quiet=True) for sentence in audit.gaps(snapshot))


def nothing_found(snapshot: Snapshot, stage: Stage) -> str:
    """Return the number of checks without findings, by evidence."""
    if not audit.questions(snapshot):
        return "No check applies."
    checks = counted(len(audit.questions(snapshot)), "check")
    return f"{checks} of {_SEEN[stage]} found nothing."


def title(finding: Finding) -> str:
    """Return the code of a finding as a title: `Replicated parameter`."""
    return finding.code.replace("-", " ").capitalize()


def saving(finding: Finding) -> str:
    """Return what a fix saves at most, or the bytes of a constant or donation; "" if they are unknown."""
    if not finding.bytes:
        return ""
    if finding.code in (CONSTANT, DONATION_UNUSED):
        return f"{bytes_text(finding.bytes)} per device"
    arrays = "" if finding.count is None else f" in {counted(finding.count, 'array')}"
    return f"saves up to {bytes_text(finding.bytes)} per device{arrays}"


def fix(change: Fix, mistake: Sequence[Finding] = ()) -> tuple[Inline, ...]:
    """Return the smallest change that fixes a finding, and its saving.

    mistake: the findings whose card has the number of arrays, and the most that a fix can save.
    """
    most = sum(finding.bytes or 0 for finding in mistake)
    if change.saves is None:
        saved = "The saving is unknown, because JAX rejects the layout as it is."
    elif not change.saves:
        saved = "The train state needs as much memory as before."
    elif change.saves < 0:
        saved = f"The train state needs {bytes_text(-change.saves)} more per device (planned)."
    elif abs(change.saves - most) <= 0.01 * most:
        saved = "Saves all of that (planned)."
    elif change.saves < most:
        saved = f"Saves {bytes_text(change.saves)} of that (planned)."
    else:
        arrays = "" if most else f" in {counted(change.arrays, 'array')}"
        saved = f"Saves {bytes_text(change.saves)} of train state per device{arrays} (planned)."
    repeated = "".join(f" Then: {finding.message}" for finding in change.repeated_work)
    return ("Fix: ", *with_code(change.words), f". {saved}{repeated}")


def checked() -> Folded:
    """Return the questions of the audit and its threshold."""
    note = "Waste below 1% of the train state per device is not reported. Identical layers are one finding."
    return Folded("Checks", (listing(*audit.questions()), text(note, quiet=True)))
