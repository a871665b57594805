"""Values that are gathered whole for a sharding constraint, or because XLA knows no other way."""

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from inspector.audit.context import AuditContext, finding
from inspector.compiled.causes import CONSTRAINT, omitted_axes
from inspector.hlo.shapes import bytes_of
from inspector.records.snapshot import Conflict, Finding, Program
from inspector.sharding.placement import ways_per_dimension
from inspector.sharding.sharding_text import spec_text
from inspector.sharding.traffic import wire_bytes_of_run
from inspector.text.formatting import bytes_text, counted
from inspector.text.program_names import subject

REMATERIALIZED = "involuntary-rematerialization"


def rematerialized_findings(context: AuditContext) -> Iterator[Finding]:
    """Yield a warning per program for which XLA warns of an involuntary full rematerialization."""
    for program in context.programs:
        if not program.rematerializations:
            continue
        first, *others = program.rematerializations
        at = f" at {first.source}" if first.source else ""
        more = f" {counted(len(others), 'other value')} as well." if others else ""
        message = (
            f"XLA warns of an involuntary full rematerialization in {subject(program.name)}{at}: it cannot "
            f"go from `{first.before}` to `{first.after}` in steps, so every device gets the whole result of "
            f"`{first.operation}`, of which it had {first.shape}, and keeps a part.{more}"
        )
        remedy = (
            "Add a sharding constraint between both, or change one of them, so that each step moves one mesh "
            "axis to another dimension."
        )
        lines = {value.source for value in program.rematerializations}
        sent = wire_bytes_of_run(*(one for one in program.collectives or () if one.source in lines))
        yield finding("warning", REMATERIALIZED, message, remedy=remedy, source=first.source, wire_bytes=sent)


CODE = "constraint-gathers-operand"


def findings(context: AuditContext) -> Iterator[Finding]:
    """Yield a warning per constraint because of which an operand is gathered and its product repeated."""
    for program in context.programs:
        found = (one for conflict in program.conflicts or () for one in _of(conflict, program, context))
        yield from {(one.source, one.axes): one for one in found}.values()


def _of(conflict: Conflict, program: Program, context: AuditContext) -> Iterator[Finding]:
    """Yield a finding for each mesh axis that a constraint omits, so that devices repeat a product."""
    if conflict.operation != "dot_general" or not conflict.collectives:
        return
    for place, operand, dimension, axis in omitted_axes(conflict):
        (result,) = (side for side in conflict.sides if side.value.startswith("result"))
        size = operand.shape[dimension]
        alike = [n for n, length in enumerate(result.shape) if length == size and not result.spec[n]]
        names = [origin.from_ for origin in operand.origins or () if origin.mesh_axis == axis]
        name = names[0] if names else operand.value
        spec, mesh = "a spec with this axis", context.snapshot.mesh_of(program)
        if len(alike) == 1:
            entries = tuple((axis,) if n == alike[0] else axes for n, axes in enumerate(result.spec))
            spec = f"`{spec_text(entries)}`"
            whole = bytes_of(f"{result.dtype}[{','.join(map(str, result.shape))}]")
            if whole is not None and mesh is not None:
                parts = (prod(ways_per_dimension(entry, mesh)) for entry in (entries, result.spec))
                held, was = (bytes_text(whole // ways) for ways in parts)
                spec += f", of which a device holds {held} instead of {was}"
        repeated = [
            part for part in (program.work and program.work.repeated) or () if axis in (part.axes or ())
        ]
        share = sum(part.flops * (1 - 1 / part.devices) for part in repeated)
        share /= program.flops_per_device or 1
        at = f" of {conflict.source}" if conflict.source else ""
        message = (
            f"The {place} leaves out `{axis}`, so {name} is gathered over it, "
            f"and devices along `{axis}` repeat the product{at}."
        )
        remedy = f"Constrain the result to {spec}, or remove the constraint."
        source = place.removeprefix(CONSTRAINT).partition(",")[0]
        ratio = 1 / (1 - share) if 0 < share < 1 else None
        known = finding("warning", CODE, message, remedy=remedy, source=source, axes=(axis,))
        yield replace(known, ratio=ratio)
