"""What improves a layout, in one ranked list: findings of the audit, and changes that lower its cost."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from inspector import audit
from inspector.answers import effects
from inspector.answers.section import (
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
    more,
    notice,
    text,
    with_code,
)
from inspector.assessment import assess
from inspector.audit import Fix, gathering_constraints, replicated, uneven_shards
from inspector.audit.programs import CONSTANT, DONATION_UNUSED, NOT_DONATED
from inspector.layout.changes import SMALL
from inspector.machines.hardware import Chip
from inspector.records.assessment import Stage
from inspector.records.snapshot import Change, Effects, Finding, Level, Snapshot
from inspector.text.formatting import and_text, bytes_text, counted

_MOST = 40
_MOST_NAMED = 4  # further findings of one mistake
COMPUTING = "Changes are being computed."
# Findings of one mistake: arrays that every device holds whole, or more of than of their parameters.
_FAMILIES = dict.fromkeys(replicated.CODES, "Replicated train state") | {
    replicated.NOT_FOLLOWING: "Optimizer state sharded less than its parameters"
}
# Findings whose repair leaves the mesh and the parameters as they are, as changes of the kinds in SMALL do.
_KEEPS_PARAMETERS = (NOT_DONATED, replicated.MOMENT, replicated.NOT_FOLLOWING, gathering_constraints.CODE)


@dataclass(frozen=True)
class Improvement:
    """A finding, or a change of the layout that lowers its cost.

    At least one of `finding` and `effect` is not None; both if a change makes a layout fit that does not.

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
    effect: Change | None = None
    more: tuple[Finding, ...] = ()

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
    known = snapshot.effects
    if known is None:
        return [improvement for _, improvement in sorted(rows, key=lambda row: row[0])]
    first = known.fitting if by_memory else None
    # Memory that is free on the chip is worth little.
    whole = (assessed.memory and assessed.memory.capacity_bytes) or known.current.peak_bytes
    for number, (place, said) in enumerate(rows):
        if said.finding is not None and said.finding.code in uneven_shards.TOO_LARGE_CODES:
            rows[number] = place, replace(said, message=f"{said.message} {fitting(known)}", effect=first)
    for change in effects.improving(known, assessed):
        if change.effect is not first:
            gain, *rest = effects.altered(known, change.effect, assessed)
            message = f"Also: {'; '.join(rest)}." if rest else ""
            said = Improvement("change", "success", change.effect.label, gain, message, effect=change.effect)
            small = change.effect.kind in SMALL
            size = max(change.memory, 0) or (0 if by_memory else max(change.wire, 0))
            timed = known.current.seconds is not None and change.share > 0
            share = change.share
            if small and whole and not by_memory:  # its activations count, too, not the train state alone
                share, size = max(share, change.memory / whole), 0
            rows.append((_order(share, size, snapshot, by_memory, small, timed), said))
    return [improvement for _, improvement in sorted(rows, key=lambda row: row[0])]


def fitting(known: Effects) -> str:
    """Return the change that makes a layout fit, or the change that comes closest, in a sentence."""
    said = "The smallest change with which it fits"
    if (change := known.fitting) is None:
        said = (
            f"None of the {counted(len(known.changes), 'change')} that were tried makes it fit. The closest"
        )
        change = known.closest
    if change is None or change.cost is None:
        return f"{said.partition('.')[0]}."
    peak, state = change.cost.peak_bytes, change.cost.state_bytes
    need = bytes_text(peak) if peak is not None else f"at least {bytes_text(state)}"
    return f"{said}: {change.label} ({need})."


def _order(
    work: float, size: float, snapshot: Snapshot, by_memory: bool, small: bool, timed: bool = False
) -> tuple[int, float]:
    """Return the place of a gain: by memory, by the step if it is known, or by the larger share.

    work: share of the step, or of the work of a device. size: bytes of a device.
    small: whether mesh and parameters stay. Such changes come first, unless the layout does not fit.
    """
    if by_memory and size > 0:
        return 1, -size
    share = max(work, audit.share_of_memory(size, snapshot)) if small or not timed else work
    if not share:
        return 4, 0.0
    return 1 if small and not by_memory else 2 if timed else 3, -audit.rounded(share)


def _rank(mistake: Sequence[Finding], snapshot: Snapshot, by_memory: bool) -> tuple[int, float]:
    level = mistake[0].level
    if level == "error":
        return 0, -audit.weight(mistake[0], snapshot) - (mistake[0].code in uneven_shards.TOO_LARGE_CODES)
    size = sum(finding.bytes or 0 for finding in mistake)
    work = max(audit.weight(finding, snapshot) for finding in mistake)
    small = any(finding.code in _KEEPS_PARAMETERS for finding in mistake)
    place, share = _order(work, size, snapshot, by_memory, small)
    return place + (place == 4 and level == "note"), share


def mistakes(listed: Sequence[Finding]) -> list[list[Finding]]:
    """Return the findings of one mistake on one mesh together, the one that saves the most first.

    A device of another mesh saves other bytes, and another PartitionSpec shards its arrays.
    """
    groups: dict[object, list[Finding]] = {}
    for number, finding in enumerate(listed):
        family = _FAMILIES.get(finding.code) if finding.bytes and finding.arrays else None
        key = number if family is None else (finding.level, family, finding.mesh)
        groups.setdefault(key, []).append(finding)
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
        KINDS[finding.level],
        title(finding),
        saving(finding),
        finding.message,
        finding=finding,
    )


def section(snapshot: Snapshot, chip: Chip | None = None, most: int = _MOST) -> Section:
    """Return the ranked list, with the findings of identical layers as one, and the effects folded below."""
    rows = ranked(snapshot, audit.merged_by_logical_axis(snapshot.findings), chip)
    blocks: list[Block] = [summary(rows, snapshot, chip), *not_checked(snapshot)]
    if rows:
        blocks.append(Listing(tuple(map(sentence, rows[:most]))))
    blocks += more(len(rows) - most, "improvement")
    if snapshot.effects is not None and snapshot.effects.changes:
        assessed = assess(snapshot, chip)
        inside = effects.details(snapshot.effects, assessed)
        blocks.append(Folded(effects.all_heading(snapshot.effects, assessed), inside))
    return Section("findings", "Findings and improvements", tuple(blocks))


def summary(
    rows: Sequence[Improvement], snapshot: Snapshot, chip: Chip | None = None, computing: bool = False
) -> Notice | Text:
    """Return the number of findings by level, and of changes; without any, the checks.

    computing: whether the effects of changes are being computed, so that the order is not final.
    """
    assessed = assess(snapshot, chip)
    if not rows:
        return notice("info", nothing_found(snapshot, assessed.basis))
    return text(Strong(f"{', '.join(_counts(rows))}."), f" {COMPUTING}" if computing else "")


def _counts(rows: Sequence[Improvement]) -> list[str]:
    labels: Counter[str] = Counter()
    for row in rows:
        labels[row.label] += max(len(row.findings), 1)
    words = [counted(labels[level], level) for level in LEVELS if labels[level]]
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


def audited(
    snapshot: Snapshot, rows: Sequence[Improvement], fixes: Mapping[int, Fix | None]
) -> tuple[Block, ...]:
    """Return the ranked list with the fixes of findings, one section each; without any, the checks.

    fixes: the fix of each finding by its identity.
    """
    if not rows:
        said = text(nothing_found(snapshot, assess(snapshot).basis))
        return (said, *not_checked(snapshot))
    blocks: list[Block] = [*not_checked(snapshot)]
    for number, row in enumerate(rows):
        if row.finding is None:
            heading, message = f"{row.label}: {row.title}", f"{row.gain}. {row.message}".strip()
        else:
            gain = f", {row.gain}" if row.gain else ""
            heading, message = f"{row.label}: {row.finding.code}{gain}", row.message
        inside: list[Block] = [text(*with_code(message))]
        known = [fix for finding in row.findings if (fix := fixes.get(id(finding))) is not None]
        known.sort(key=lambda fix: fix.kind not in SMALL)  # ZeRO-1 is a smaller change than FSDP
        words = {fix.words: fix_text(fix, row.findings) for fix in known}
        inside += [text(*said) for said in words.values()]
        if not words and row.finding is not None and row.finding.remedy is not None:
            inside.append(text("Fix: ", *with_code(row.finding.remedy)))
        blocks.append(Section(f"finding-{number}", heading, tuple(inside)))
    return tuple(blocks)


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


def fix_text(change: Fix, mistake: Sequence[Finding] = ()) -> tuple[Inline, ...]:
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
