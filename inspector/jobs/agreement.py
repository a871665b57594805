"""Compare planned with actual placements."""

import json
from typing import Any

from inspector import audit
from inspector.layout import from_json
from inspector.layout.plan import INDIVISIBLE
from inspector.machines import targets
from inspector.records import typed_json
from inspector.records.snapshot import Array, Finding, Snapshot
from inspector.text.errors import InvalidInput
from inspector.text.formatting import counted

NOT_AS_PLANNED = "not-as-planned"
CHOSEN_BY_THE_COMPILER = ("activation", "gradient")


def refuse_indivisible(planned: Snapshot) -> None:
    """Refuse a plan with a dimension that its mesh axes do not divide, as JAX does.

    Raises:
      InvalidInput: there is one; the sentence has the first, the number of the others, and the smallest fix.
    """
    uneven = [finding for finding in planned.findings if finding.code == INDIVISIBLE]
    if uneven:
        more = f" (and {counted(len(uneven) - 1, 'more array')})" if len(uneven) > 1 else ""
        fix = audit.smallest_change(planned, uneven[0], from_json(planned.layout)) if planned.layout else None
        remedy = "" if fix is None else f". To fix it, {fix.words}"
        raise InvalidInput(f"{uneven[0].message}{more}{remedy}")


def disagreements(planned: Snapshot, found: Snapshot) -> tuple[Finding, ...]:
    """Return a finding for each array that is not placed as planned, and for a different mesh.

    Activations and gradients are left out: the compiler places them.
    """
    expected, actual = (
        {
            array.path: _placement(array)
            for array in snapshot.arrays
            if array.group not in CHOSEN_BY_THE_COMPILER
        }
        for snapshot in (planned, found)
    )
    findings = []
    if not _same_mesh(planned, found):
        message = "the mesh was planned and found differently: " + _difference(
            typed_json.encode(planned.mesh), typed_json.encode(found.mesh)
        )
        findings.append(Finding("error", NOT_AS_PLANNED, message))
    for path in sorted(expected.keys() | actual.keys()):
        if expected.get(path) != actual.get(path):
            difference = _difference(expected.get(path), actual.get(path))
            message = f"{path} was planned and found differently: {difference}"
            findings.append(Finding("error", NOT_AS_PLANNED, message, array=path))
    return tuple(findings)


def placed_as_planned(planned: Snapshot, found: Snapshot) -> str:
    """Return that all arrays are placed as planned, in a sentence; "" if one of them, or the mesh, is not.

    A plan numbers the devices in mesh order. The compiler of a target has an order of its own.
    """
    if disagreements(planned, found):
        return ""
    number = sum(array.group not in CHOSEN_BY_THE_COMPILER for array in found.arrays)
    meshes = planned.mesh, found.mesh
    pairs = zip(*(mesh.devices if mesh else () for mesh in meshes), strict=False)
    other = next(((before, after) for before, after in pairs if before != after), None)
    order = "" if other is None else f" Device {other[0]} of the plan is device {other[1]} of the target."
    return f"All {counted(number, 'array')} are placed as planned.{order} " if number else ""


def _same_mesh(planned: Snapshot, snapshot: Snapshot) -> bool:
    if snapshot.source.kind not in targets.KINDS or not planned.mesh or not snapshot.mesh:
        return planned.mesh == snapshot.mesh
    # The compiler of a target orders its devices.
    return planned.mesh.axes == snapshot.mesh.axes


def _placement(array: Array) -> dict[str, Any]:
    """Return the fields of an array that a plan has."""
    plain = typed_json.encode(array)
    return {key: plain[key] for key in plain if key not in ("box", "facts", "program", "memory_kind")}


def _difference(expected: dict[str, Any] | None, actual: dict[str, Any] | None) -> str:
    if not expected or not actual:
        return "planned only" if not actual else "found only"
    return "; ".join(
        f"{key} {json.dumps(value)} became {json.dumps(actual.get(key))}"
        for key, value in expected.items()
        if value != actual.get(key)
    )
