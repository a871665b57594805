"""Collectives that move more than the parameters they serve."""

from __future__ import annotations

from collections import defaultdict

from inspector.checks.audit import thresholds
from inspector.checks.audit.examined import Examined, finding, names_text
from inspector.core.formatting import counted
from inspector.core.snapshot import Collective, Finding, Program

WHAT = "collectives that are larger than the parameters they serve"

CODE = "collectives-larger-than-parameters"

_STEP = "train_step"


def findings(examined: Examined) -> list[Finding]:
    """One for each group of mesh axes over which a step moves more than the parameters split over it.

    Compared are the bytes that one device gives to these collectives in a step, and the parameters that
    are split over these axes as a device would have them after gathering over them: with so many bytes
    or fewer, weights could be moved in place of activations.
    """
    program = examined.found.program(_STEP)
    if program is None or not program.collectives:
        return []
    found = []
    for axes, held in _by_axes(program).items():
        payload = _payload(held)
        gathered = _gathered(examined, axes)
        if payload is None or not gathered or payload <= thresholds.LEAST_TRAFFIC * gathered:
            continue
        if payload < examined.least:
            continue
        executions = sum(one.executions or 0 for one in held)
        found.append(
            finding(
                "note",
                CODE,
                f"A train step moves {examined.amount(payload)} from each device over mesh axis "
                f"{names_text(axes)} in {counted(executions, 'collective')}, more than the parameters that "
                f"this axis splits, {examined.amount(gathered)} after gathering. Those bytes are activations "
                "and their gradients: a smaller batch a device, fewer devices on this axis, or gathering the "
                "parameters instead (FSDP) would move less.",
                axes=list(axes),
                payload_bytes=payload,
            )
        )
    return found


def _by_axes(program: Program) -> dict[tuple[str, ...], list[Collective]]:
    together: dict[tuple[str, ...], list[Collective]] = defaultdict(list)
    for one in program.collectives or ():
        if one.mesh_axes:
            together[one.mesh_axes].append(one)
    return together


def _payload(collectives: list[Collective]) -> int | None:
    """Bytes of all executions in one step; None where a count or a size is not known."""
    total = 0
    for one in collectives:
        if one.executions is None or one.payload_bytes is None:
            return None
        total += one.executions * one.payload_bytes
    return total


def _gathered(examined: Examined, axes: tuple[str, ...]) -> int:
    """Bytes a device of the parameters split over any of these axes, once gathered over them."""
    total = 0
    for array in examined.of_group("params"):
        used = {axis for entry in array.spec or () for axis in entry or ()} & set(axes)
        if used:
            total += (array.bytes_per_device or 0) * examined.mesh.ways(tuple(used))
    return total
