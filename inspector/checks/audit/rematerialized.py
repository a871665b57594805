"""Values that XLA's partitioner gathers whole, because it knows no other way between two shardings."""

from collections.abc import Iterator

from inspector.checks.audit.context import AuditContext, finding
from inspector.core.formatting import counted
from inspector.core.program_names import subject
from inspector.core.snapshot import Finding
from inspector.core.traffic import wire_bytes_of_run

CODE = "involuntary-rematerialization"


def findings(context: AuditContext) -> Iterator[Finding]:
    """Yield a warning per program for which XLA warns of an involuntary full rematerialization."""
    for program in context.snapshot.programs:
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
        yield finding("warning", CODE, message, remedy=remedy, source=first.source, wire_bytes=sent)


def applies(context: AuditContext) -> bool:
    """Return whether the log of the partitioner is known."""
    return any(program.rematerializations is not None for program in context.snapshot.programs)
