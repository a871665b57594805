"""The difference of two Snapshots in sentences that name causes, the largest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from inspector.difference import origin
from inspector.difference.amounts import per_device
from inspector.difference.answers import change_text
from inspector.difference.array_differences import (
    ONLY_AFTER,
    ONLY_BEFORE,
    ArrayDifference,
    arrays,
)  # fmt: skip
from inspector.difference.causes import Causes, causes
from inspector.difference.group_sentence import group_sentence, joined
from inspector.difference.groups import Group, groups
from inspector.difference.traffic_change import memory_sentence, traffic_sentence
from inspector.hardware import Chip
from inspector.snapshot import Snapshot
from inspector.step_model import bound_text, modelled
from inspector.totals import STATE_GROUPS, state_totals
from inspector.wording import counted

# Of what a program does before the first step, no layout is chosen.
_PROGRAMS_ASIDE = ("init",)
_LEVELS = ("error", "warning", "note")


def sentences(
    before: Snapshot, after: Snapshot, chip: Chip | None = None, limit: int | None = None
) -> tuple[str, ...]:
    """How much differs, then a sentence a cause, then collectives, memory, modelled time and findings.

    Args:
      chip: what the time of programs is modelled on; nothing is said of it without one.
      limit: at most so many sentences, the last of which then says how many smaller changes there are.
    """
    compared = arrays(before, after)
    why = causes(before, after)
    found = groups(compared, why, before, after)
    said = [
        *_headline(before, after, compared, why),
        *(group_sentence(group, why) for group in found),
        *_without_arrays(why, found),
        *_of_programs(before, after, why, chip),
        *_of_findings(before, after),
        *_aside(before, after, why),
    ]
    if not said:
        return (_nothing(before, after, compared),)
    if limit is not None and len(said) > limit:
        left = len(said) - limit
        said = [*said[:limit]]
        said[-1] = f"{said[-1].removesuffix('.')}; and {counted(left, 'smaller change')}."
    return tuple(said)


def _nothing(before: Snapshot, after: Snapshot, compared: Sequence[ArrayDifference]) -> str:
    what = "arrays, mesh and layout" if before.layout and after.layout else "arrays and mesh"
    if before.programs or after.programs:
        what = what.replace(" and ", ", ") + " and programs"
    return f"Nothing differs: {what} are the same, {counted(len(compared), 'array')} compared."


def _headline(
    before: Snapshot, after: Snapshot, compared: Sequence[ArrayDifference], why: Causes
) -> Iterator[str]:
    """How many arrays differ and what a device holds in all; nothing if all arrays are the same."""
    changed = [one for one in compared if one.changed]
    if not changed:
        return
    common = sum(one.before is not None and one.after is not None for one in compared)
    differ = sum(one.before is not None and one.after is not None for one in changed)
    come = sum(one.changed == (ONLY_AFTER,) for one in changed)
    gone = sum(one.changed == (ONLY_BEFORE,) for one in changed)
    said = []
    if differ:
        which = f"all {counted(common, 'array')}" if differ == common > 1 else None
        which = which or f"{differ:,} of {counted(common, 'array')}"
        said.append(f"{which} differ{'s' * (differ == 1)}")
    for count, what in ((come, "new"), (gone, "gone")):
        if count:
            noun = f"{count:,}" if said else counted(count, "array")
            said.append(f"{noun} {'is' if count == 1 else 'are'} {what}")
    state = [one for one in compared if one.either.group in STATE_GROUPS]
    held = f"; {_holding(before, after, state)}" if state else ""
    words = f"{', '.join(said)}{held}."
    yield f"{why.mesh.clause}: {words}" if why.mesh.moves else f"{words[:1].upper()}{words[1:]}"


def _holding(before: Snapshot, after: Snapshot, state: list[ArrayDifference]) -> str:
    held = per_device(state, before, after)
    if held.before is None or held.after is None:
        return "how much each device holds of the train state is not known of both"
    if held.before == held.after:
        words = f"each device holds {held.text(held.after)} of train state as before"
    else:
        words = (
            f"each device holds {held.text(held.after)} of train state in place of "
            f"{held.text(held.before, unit=False)} ({change_text(held.before, held.after)})"
        )
    copies = state_totals(before).copies, state_totals(after).copies
    if None not in copies and f"{copies[0]:.3g}" != f"{copies[1]:.3g}":
        words += f"; copies on all devices: {copies[1]:.3g} in place of {copies[0]:.3g}"
    return words


def _without_arrays(why: Causes, found: Sequence[Group]) -> Iterator[str]:
    """The causes from which no array follows, all in one sentence; of another model they say nothing."""
    told = {clause for group in found for clause in group.causes}
    if found and why.mesh.moves:
        told.add(why.mesh.clause)
    if why.donation:
        yield f"{why.donation}."
    if why.model and why.model in told:
        return
    left = tuple(clause for clause in why.every if clause not in (*told, why.donation))
    if left:
        yield f"{joined(left)}; no array lies otherwise for {'it' if len(left) == 1 else 'them'}."


def _of_programs(
    before: Snapshot, after: Snapshot, why: Causes, chip: Chip | None
) -> Iterator[str]:
    """Collectives and memory, those first of which most bytes changed, and then modelled times."""
    pairs = [
        (old, new)
        for new in after.programs
        if (old := before.program(new.name)) is not None and new.name not in _PROGRAMS_ASIDE
    ]
    sized = [
        *(traffic_sentence(old, new, why.mesh.renamed) for old, new in pairs),
        *(memory_sentence(before, after, new.name) for _, new in pairs),
    ]
    told = [one for one in sized if one is not None]
    yield from (sentence for _, sentence in sorted(told, key=lambda one: -one[0]))
    if chip is None or before.mesh is None or after.mesh is None:
        return
    for old, new in pairs:
        models = modelled(old, before.mesh, chip), modelled(new, after.mesh, chip)
        was, becomes = (one.lower_seconds for one in models)
        if was is not None and becomes is not None and (change := change_text(was, becomes)):
            yield (
                f"On {chip.title}, {new.name} is modelled at {bound_text(models[1])}, in place of "
                f"{bound_text(models[0])} ({change} for the lower bound)."
            )


def _of_findings(before: Snapshot, after: Snapshot) -> Iterator[str]:
    told = [
        {(one.level, one.code, one.array): one for one in found.findings}
        for found in (before, after)
    ]
    for mine, other, what in ((told[1], told[0], "new"), (told[0], told[1], "gone")):
        rows = [one for key, one in mine.items() if key not in other]
        if rows:
            levels = {
                level: sum(one.level == level for one in rows)
                for level in ("error", "warning", "note")
            }
            counts = [counted(count, level) for level, count in levels.items() if count]
            are = "is" if len(rows) == 1 else "are"
            yield f"{' and '.join(counts)} {are} {what}: {rows[0].message.removesuffix('.')}" + (
                f", and {len(rows) - 1:,} more." if len(rows) > 1 else "."
            )


def _aside(before: Snapshot, after: Snapshot, why: Causes) -> Iterator[str]:
    texts = origin.text(before), origin.text(after)
    said = list(why.layout.aside)
    if texts[0] != texts[1]:
        said.insert(0, f"the second is {texts[1]} and the first {texts[0]}")
    if said:
        yield f"Besides: {', '.join(said)}."
