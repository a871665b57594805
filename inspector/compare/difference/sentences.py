"""The difference of two Snapshots in sentences that name causes, the largest first."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from inspector.compare.difference import origin
from inspector.compare.difference.amounts import per_device
from inspector.compare.difference.answers import change_text
from inspector.compare.difference.array_differences import (  # fmt: skip
    ONLY_AFTER,
    ONLY_BEFORE,
    ArrayDifference,
    arrays,
)
from inspector.compare.difference.causes import Causes, causes
from inspector.compare.difference.group_sentence import group_sentence, joined
from inspector.compare.difference.groups import Group, groups
from inspector.compare.difference.one_sided import (
    PROGRAMS_ASIDE,
    arrays_of_one_sentence,
    only_of_compiled,
    only_of_compiled_sentence,
    programs_sentence,
)
from inspector.compare.difference.traffic_change import memory_sentence, traffic_sentence
from inspector.core.formatting import and_text, counted, times_text
from inspector.core.snapshot import Program, Snapshot
from inspector.core.totals import STATE_GROUPS, state_totals
from inspector.machines.hardware import Chip
from inspector.machines.prediction.cost import si_text
from inspector.machines.prediction.step_model import bound_text, modelled

# Below it, FLOPs differ by what compilers fuse, and not by what a layout makes a device do.
_LEAST_SHARE = 0.01


def sentences(
    before: Snapshot, after: Snapshot, chip: Chip | None = None, limit: int | None = None
) -> tuple[str, ...]:
    """How much differs, and the largest cause with what follows from it; then the other causes, collectives
    and memory, those first by which most bytes changed; then FLOPs, modelled time and findings.

    Args:
      chip: what the time of programs is modelled on; nothing is said of it without one.
      limit: at most so many sentences, the last of which then says how many smaller changes there are.
    """
    every = arrays(before, after) if before.arrays and after.arrays else ()
    aside = only_of_compiled(every, before, after)
    compared = [one for one in every if one not in aside]
    why = causes(before, after)
    found = groups(compared, why, before, after)
    told = [(_moved(group), group_sentence(group, why)) for group in found]
    sized = sorted((*told[1:], *_of_programs(before, after, why)), key=lambda one: -one[0])
    said = [
        *arrays_of_one_sentence(before, after),
        *_headline(before, after, compared, why),
        *(sentence for _, sentence in (*told[:1], *sized)),
        *_without_arrays(why, found),
        *programs_sentence(before, after),
        *_of_work(before, after, chip),
        *only_of_compiled_sentence(aside),
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
    """That all is the same which both of them have."""
    have = {
        "arrays": bool(compared),
        "mesh": before.mesh is not None and after.mesh is not None,
        "layout": before.layout is not None and after.layout is not None,
        "programs": bool(before.programs) and bool(after.programs),
    }
    same = [what for what, both in have.items() if both]
    if not same:
        return "Neither has arrays, a mesh or programs: there is nothing to compare."
    are = "is" if same in (["mesh"], ["layout"]) else "are"
    counts = f", {counted(len(compared), 'array')} compared" if compared else ""
    return f"Nothing differs: the {and_text(same)} {are} the same{counts}."


def _moved(group: Group) -> float:
    """The bytes per device that a group of arrays gains or loses; those of which only elements or nothing
    is known stay in their order before what is known."""
    amount = group.state if group.state.gained else group.all
    if amount.gained is None or amount.unit != "bytes":
        return math.inf
    return abs(amount.gained)


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
        which = None
        if differ == common > 1:
            which = "both arrays" if common == 2 else f"all {counted(common, 'array')}"
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
    was, now = map(times_text, copies)
    if None not in copies and was != now:
        words += f"; copies on all devices: {now} in place of {was}"
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
    if why.mesh.clause in told:
        for rule, axes in why.idle_rules.items():
            noun = "axis" if len(axes) == 1 else "axes"
            yield f"The rule {rule} is gone with the mesh {noun} {and_text(axes)}."
            told.add(f"The rule {rule} is gone")
    left = tuple(clause for clause in why.every if clause not in (*told, why.donation))
    if left:
        yield f"{joined(left)}; no array lies otherwise for {'it' if len(left) == 1 else 'them'}."


def _pairs(before: Snapshot, after: Snapshot) -> list[tuple[Program, Program]]:
    return [
        (old, new)
        for new in after.programs
        if (old := before.program(new.name)) is not None and new.name not in PROGRAMS_ASIDE
    ]


def _of_programs(before: Snapshot, after: Snapshot, why: Causes) -> list[tuple[int, str]]:
    """Collectives and memory of each program, with the bytes by which they changed."""
    sized = []
    for old, new in _pairs(before, after):
        sized.append(traffic_sentence(old, new, why.mesh.renamed))
        sized.append(memory_sentence(before, after, new.name))
    return [one for one in sized if one is not None]


def _of_work(before: Snapshot, after: Snapshot, chip: Chip | None) -> Iterator[str]:
    """FLOPs of each program, and what its time is modelled at."""
    for old, new in _pairs(before, after):
        work = old.flops_per_device, new.flops_per_device
        if None not in work and abs(work[1] - work[0]) >= _LEAST_SHARE * max(work):
            yield (
                f"{new.name} computes {si_text(work[1], 'FLOP')} per device and run in place of "
                f"{si_text(work[0], 'FLOP')} ({change_text(*work)})."
            )
        if chip is None or before.mesh is None or after.mesh is None:
            continue
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
