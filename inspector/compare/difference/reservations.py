"""What cannot be compared of two Snapshots, or only with care."""

from __future__ import annotations

from collections.abc import Iterator

from inspector.compare.difference import origin
from inspector.core.formatting import and_text, counted
from inspector.core.snapshot import Snapshot
from inspector.core.totals import STATE_GROUPS, state_totals

# Packages that decide where arrays lie and what programs do, in the order of their weight.
_DECIDING = ("jax", "jaxlib", "flax", "libtpu", "optax")


def reservations(before: Snapshot, after: Snapshot) -> tuple[str, ...]:
    """A sentence each; none where the two can be held against each other in everything."""
    return (
        *_of_models(before, after),
        *_of_meshes(before, after),
        *_of_sources(before, after),
        *_of_times(before, after),
        *_of_bytes(before, after),
        *_of_versions(before, after),
    )


def _of_models(before: Snapshot, after: Snapshot) -> Iterator[str]:
    models = origin.model(before), origin.model(after)
    sizes = origin.sizes(before), origin.sizes(after)
    paths = [{a.path for a in found.arrays if a.group in STATE_GROUPS} for found in (before, after)]
    if None not in models and models[0] != models[1]:
        yield (
            f"They are of different models, {models[0]} and {models[1]}: "
            "bytes and times differ by the models too, not by the layouts alone."
        )
    elif None not in sizes and sizes[0] != sizes[1]:
        names = [
            name for name in {**sizes[0], **sizes[1]} if sizes[0].get(name) != sizes[1].get(name)
        ]
        yield (
            f"Their models differ in {and_text(names)}: "
            "what follows from that is no difference of the layouts."
        )
    elif paths[0] != paths[1] and all(paths):
        both = len(paths[0] & paths[1])
        yield (
            f"Their train states are not of the same arrays, {counted(both, 'path')} of "
            f"{len(paths[0] | paths[1]):,} in both: totals differ by that too."
        )
    if not all(paths) and any(paths):
        which = "first" if not paths[0] else "second"
        yield f"The {which} has no arrays of a train state, so that none can be compared."


def _of_meshes(before: Snapshot, after: Snapshot) -> Iterator[str]:
    old, new = before.mesh, after.mesh
    if old is None or new is None:
        which = "neither" if old is new else "first" if old is None else "second"
        mesh = "of neither is" if which == "neither" else f"of the {which} is not"
        yield f"The mesh {mesh} known, so that where arrays lie cannot be compared."
    elif old.size != new.size:
        yield (
            f"They have {old.size:,} and {counted(new.size, 'device')}: "
            "what each device holds or does is compared, not what all together do."
        )


def _of_sources(before: Snapshot, after: Snapshot) -> Iterator[str]:
    texts = origin.text(before), origin.text(after)
    if texts[0] == texts[1]:
        return
    compiled = [bool(found.programs) for found in (before, after)]
    if all(compiled):
        why = "different compilers fuse and pad otherwise, which shows in memory, FLOPs and time"
    elif any(compiled):
        which = "first" if not compiled[0] else "second"
        why = f"the {which} has no compiled programs, so that only arrays can be compared"
    else:
        why = "neither has compiled programs, so that only arrays can be compared"
    yield f"The first is {texts[0]} and the second {texts[1]}: {why}."


def _of_times(before: Snapshot, after: Snapshot) -> Iterator[str]:
    timed = [
        any(one.seconds and one.seconds.steps for one in found.programs)
        for found in (before, after)
    ]
    if all(timed) and _steps(before) == _steps(after):
        return  # of one and the same run
    if all(timed):
        yield (
            "Their step times were measured in runs of their own, and what else the machine did is in "
            "them: only times taken in turn in one run are a fair ratio."
        )
    elif any(timed):
        yield f"Only the {'first' if timed[0] else 'second'} has measured step times."


def _steps(found: Snapshot) -> list[object]:
    return [(one.name, one.seconds and one.seconds.steps) for one in found.programs]


def _of_bytes(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """Only where both have a train state: that one has none, or no mesh, is said already."""
    sums = state_totals(before), state_totals(after)
    if not all(one.arrays for one in sums):
        return
    unknown = [one.per_device is None for one in sums]
    if any(unknown):
        which = "both" if all(unknown) else f"the {'first' if unknown[0] else 'second'}"
        shapes = all(
            array.shape is not None
            for found in (before, after)
            for array in found.arrays
            if array.group in STATE_GROUPS
        )
        instead = "elements are compared" if shapes else "only specs and places are compared"
        yield f"The bytes per device of {which} are not known, so that {instead}."


def _of_versions(before: Snapshot, after: Snapshot) -> Iterator[str]:
    old, new = before.source.versions, after.source.versions
    said = [
        f"{name} {old[name]} and {new[name]}"
        for name in _DECIDING
        if name in old and name in new and old[name] != new[name]
    ]
    if said:
        yield f"They were made with different versions: {', '.join(said)}."
