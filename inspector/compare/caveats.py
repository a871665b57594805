"""Reasons why two Snapshots are not comparable, or only in part."""

from collections.abc import Iterator
from dataclasses import dataclass

from inspector.compare import origin
from inspector.layout.plan import rejection
from inspector.records.snapshot import Snapshot
from inspector.sharding.totals import STATE_GROUPS, state_totals, states_text
from inspector.text.errors import shown
from inspector.text.formatting import and_text, counted

# Packages that decide about sharding and compiled programs.
_PACKAGES = ("jax", "jaxlib", "flax", "libtpu", "optax")
# Arrays inside a step. Their sharding is unknown before the step is compiled.
INSIDE_STEP = ("activation", "gradient")
# Caveats that also appear next to each figure that they affect.
_SHORT = {
    "model": "another model",
    "sizes": "other sizes",
    "arrays": "other arrays",
    "devices": "another number of devices",
}


@dataclass(frozen=True)
class Caveat:
    """One reason, as a code for programs and a sentence for people."""

    code: str
    text: str


def caveats(before: Snapshot, after: Snapshot) -> tuple[Caveat, ...]:
    """Return one caveat per reason. The result is empty if the two Snapshots are fully comparable."""
    checks = (_rejected, _arrays, _inside_step, _meshes, _sources, _bytes, _versions, _options)
    return tuple(Caveat(*reason) for check in checks for reason in check(before, after))


def remark(before: Snapshot, after: Snapshot) -> str:
    """Return the caveat that belongs next to a figure, in two to five words, or an empty string."""
    codes = (code for check in (_arrays, _meshes) for code, _ in check(before, after))
    return next((_SHORT[code] for code in codes if code in _SHORT), "")


def knows_inside_step(snapshot: Snapshot) -> bool:
    """Return whether the Snapshot can have activations and gradients."""
    return bool(snapshot.programs) or any(a.group in INSIDE_STEP for a in snapshot.arrays)


_Reasons = Iterator[tuple[str, str]]


def _rejected(before: Snapshot, after: Snapshot) -> _Reasons:
    for snapshot in (before, after):
        if why := rejection(snapshot):
            which = _which(snapshot is before)
            yield "rejected", f"JAX rejects the {which}, so no figure of it can be better: {why}."


def _arrays(before: Snapshot, after: Snapshot) -> _Reasons:
    both = before, after
    models = [origin.model(snapshot) for snapshot in both]
    was, now = origin.sizes(before), origin.sizes(after)
    old, new = ({a.path for a in snapshot.arrays if a.group in STATE_GROUPS} for snapshot in both)
    if None not in models and models[0] != models[1]:
        yield "model", f"Different models: {models[0]} and {models[1]}."
    elif was is not None and now is not None and was != now:
        names = [name for name in {**was, **now} if was.get(name) != now.get(name)]
        yield "sizes", f"Different sizes of the model: {and_text(names)}."
    if bool(before.arrays) != bool(after.arrays):
        count = counted(len(before.arrays or after.arrays), "array")
        which = _which(not before.arrays)
        yield "no-arrays", f"The {which} has no arrays, so the other's {count} cannot be compared."
    elif bool(old) != bool(new):
        yield "no-state", f"The {_which(not old)} has no train state, so none can be compared."
    elif old != new and None in models:
        shared = f"{counted(len(old & new), 'path')} of {len(old | new):,} in both"
        yield "arrays", f"Different {states_text(*both)}: {shared}."


def _inside_step(before: Snapshot, after: Snapshot) -> _Reasons:
    for known, other in ((before, after), (after, before)):
        groups = [array.group for array in known.arrays]
        counts = [counted(groups.count(group), group) for group in INSIDE_STEP if group in groups]
        if counts and not knows_inside_step(other):
            only = f"Only the {_which(known is before)} has {and_text(counts)}"
            yield "not-compiled", f"{only}: the other has no compiled program."


def _meshes(before: Snapshot, after: Snapshot) -> _Reasons:
    old, new = before.mesh, after.mesh
    if old is None or new is None:
        known = f"The mesh of the {_which(old is None)} is unknown"
        known = "Neither mesh is known" if old is new else known
        yield "mesh", f"{known}, so placements cannot be compared."
    elif old.size != new.size:
        sizes = f"{old.size:,} and {new.size:,}"
        yield "devices", f"Different numbers of devices, {sizes}: figures are per device."


def _sources(before: Snapshot, after: Snapshot) -> _Reasons:
    both = before, after
    texts = [origin.text(snapshot) for snapshot in both]
    if texts[0] != texts[1]:
        if before.programs and after.programs:
            why = "different compilers affect memory, FLOPs and time"
        elif before.programs or after.programs:
            which = _which(not before.programs)
            why = f"the {which} has no compiled program, so only arrays are compared"
        else:
            why = "neither has a compiled program, so only arrays are compared"
        yield "source", f"The first is {texts[0]}, the second {texts[1]}: {why}."
    old, new = (
        [
            (program.name, program.seconds.steps)
            for program in snapshot.programs
            if program.seconds and program.seconds.steps
        ]
        for snapshot in both
    )
    if bool(old) != bool(new):
        yield "times", f"Only the {_which(bool(old))} has measured step times."
    elif old != new:
        yield (
            "times",
            (
                "Step times come from separate runs on a shared machine. Time the layouts together for a "
                "reliable ratio."
            ),
        )


def _bytes(before: Snapshot, after: Snapshot) -> _Reasons:
    totals = state_totals(before), state_totals(after)
    unknown = [total.per_device is None for total in totals]
    if not all(total.arrays for total in totals) or not any(unknown):
        return
    which = "both" if all(unknown) else f"the {_which(unknown[0])}"
    arrays = (array for snapshot in (before, after) for array in snapshot.arrays)
    shapes = all(array.shape is not None for array in arrays if array.group in STATE_GROUPS)
    code, compared = ("elements", "elements") if shapes else ("specs", "only specs and placements")
    yield code, f"The bytes per device of {which} are unknown, so {compared} are compared."


def _versions(before: Snapshot, after: Snapshot) -> _Reasons:
    old, new = before.source.versions, after.source.versions
    common = [name for name in _PACKAGES if name in old and name in new]
    changed = [f"{name} {old[name]} and {new[name]}" for name in common if old[name] != new[name]]
    if changed:
        yield "versions", f"Different versions: {', '.join(changed)}."


def _options(before: Snapshot, after: Snapshot) -> _Reasons:
    """Yield a reason if options of the compiler differ that are not part of the layouts."""
    old, new = (snapshot.source.unsafe_compiler_options for snapshot in (before, after))
    if old != new:
        both = " and ".join(shown(options) if options else "none" for options in (old, new))
        yield (
            "compiler-options",
            f"Different options of the compiler outside of the layout: {both}.",
        )


def _which(first: bool) -> str:
    return "first" if first else "second"
