"""Mesh axes that split nothing, that only the batch is split over, or that have size 1."""

from __future__ import annotations

from inspector.checks.audit import thresholds
from inspector.checks.audit.examined import Examined, finding, finest_split, names_text
from inspector.core.formatting import counted
from inspector.core.snapshot import Array, Finding, MeshAxis
from inspector.core.totals import STATE_GROUPS

WHAT = "mesh axes that split nothing, or nothing of the train state"

UNUSED = "unused-mesh-axis"
REPEATED = "state-repeated-over-axis"
SIZE_1 = "size-1-mesh-axis"

_LAID_OUT = (*STATE_GROUPS, "batch", "output", "activation")


def findings(examined: Examined) -> list[Finding]:
    """One for each mesh axis that is idle or repeats the train state, one for all of size 1."""
    found = []
    for axis in examined.mesh.axes:
        if axis.size > 1:
            found += _of_axis(examined, axis)
    return found + _of_size_1(examined)


def _of_axis(examined: Examined, axis: MeshAxis) -> list[Finding]:
    laid_out = [array for array in examined.found.arrays if array.group in _LAID_OUT]
    if not laid_out or any(array.spec is None for array in laid_out if array.group in STATE_GROUPS):
        return []  # an array placed in another way may use it
    using = [array for array in laid_out if _uses(array, axis.name)]
    state = examined.of_group(*STATE_GROUPS)
    # What is whole on every device is told array by array.
    repeated = [
        array
        for array in state
        if not _uses(array, axis.name) and (not using or not examined.is_whole(array))
    ]
    saved = sum(_saved(examined, array, axis.name) for array in repeated)
    if not using:
        could = (
            f"Splitting the train state over it would save up to {examined.amount(saved)} a device; "
            if saved
            else ""
        )
        return [
            finding(
                "warning",
                UNUSED,
                f"Mesh axis {axis.name} splits nothing: along it {axis.size} devices hold and compute the "
                f"same. {could}{axis.size} times fewer devices would do the same work without it.",
                saved=saved or None,
                remedy=f"Name {axis.name} in a {examined.decided_by}, or leave it out of the mesh.",
                axes=[axis.name],
            )
        ]
    if saved < max(examined.least, thresholds.LEAST_REPEATED_SHARE * examined.state_bytes):
        return []
    held = sum(array.bytes_per_device or 0 for array in repeated)
    way = f"Splitting them over {axis.name}, too,"
    if not any(_uses(array, axis.name) for array in state):
        way = (
            "That is plain data parallelism, which may be meant; splitting the state over "
            f"{axis.name}, too, as FSDP and ZeRO do,"
        )
    return [
        finding(
            "note",
            REPEATED,
            f"Along mesh axis {axis.name} {axis.size} devices hold the same {examined.amount(held)} of train "
            f"state ({counted(len(repeated), 'array')}). {way} would save up to {examined.amount(saved)} a "
            "device, at the price of gathering parameters when they are needed.",
            saved=saved,
            remedy=f"Split a large dimension of the parameters over {axis.name}, by a {examined.decided_by}.",
            axes=[axis.name],
        )
    ]


def _of_size_1(examined: Examined) -> list[Finding]:
    named = {axis for _, axes in examined.rules or () for axis in axes}
    for array in examined.found.arrays:
        named.update(axis for axes in array.spec or () for axis in axes or ())
    trivial = [axis.name for axis in examined.mesh.axes if axis.size == 1 and axis.name in named]
    if not trivial:
        return []
    one = len(trivial) == 1
    return [
        finding(
            "note",
            SIZE_1,
            f"Mesh {'axis' if one else 'axes'} {names_text(trivial)} {'has' if one else 'have'} size 1 and "
            f"split{'s' * one} nothing, although rules or PartitionSpecs name "
            f"{'it' if one else 'them'}: what is mapped there stays whole.",
            axes=trivial,
        )
    ]


def _uses(array: Array, axis: str) -> bool:
    return any(axis in (axes or ()) for axes in array.spec or ())


def _saved(examined: Examined, array: Array, axis: str) -> int:
    if array.spec is None or array.bytes_per_device is None:
        return 0
    ways, _ = finest_split(array.shape, array.spec, examined.mesh, (axis,))
    return array.bytes_per_device - array.bytes_per_device // ways
