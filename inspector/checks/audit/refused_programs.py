"""Programs that JAX refuses to trace on explicit mesh axes."""

from collections.abc import Iterator

from inspector.checks.audit.context import AuditContext
from inspector.core.program_names import title
from inspector.core.sharding_errors import sentence
from inspector.core.snapshot import Finding

CODE = "sharding-type-error"


def findings(context: AuditContext) -> Iterator[Finding]:
    """Yield a finding for each program that JAX refuses."""
    for program in context.snapshot.programs:
        if program.sharding_error is not None:
            yield Finding("error", CODE, f"{title(program.name)}: {sentence(program.sharding_error)}")
