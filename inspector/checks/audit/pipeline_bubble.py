"""The iterations of a pipeline in which stages have no microbatch."""

from __future__ import annotations

from collections.abc import Iterator

from inspector.checks.audit.context import AuditContext, finding
from inspector.core.formatting import share_text
from inspector.core.program_names import subject
from inspector.core.snapshot import Finding

CODE = "pipeline-bubble"
# A tenth of all iterations: 9 microbatches for each stage but one.
_LEAST_SHARE = 0.1


def findings(context: AuditContext) -> Iterator[Finding]:
    """Yield a note per program with a pipeline whose bubble is a tenth of its work or more."""
    for program in context.snapshot.programs:
        largest = max(
            program.pipelines or (),
            key=lambda pipeline: (pipeline.stages - 1) / pipeline.microbatches,
            default=None,
        )
        if largest is None:
            continue
        stages, microbatches = largest.stages, largest.microbatches
        iterations = microbatches + stages - 1
        share = (stages - 1) / iterations
        if share < _LEAST_SHARE:
            continue
        along = f" along `{largest.axes[0]}`" if largest.axes else ""
        at = f" at {largest.source}" if largest.source else ""
        message = (
            f"{subject(program.name)} runs a pipeline of {stages} stages{along}{at}: {microbatches} "
            f"microbatches in {iterations} iterations. In {stages - 1} of them, a device computes nothing "
            f"that is used: {share_text(share, 0)} of the loop, {iterations / microbatches:.3g} times the "
            "work."
        )
        remedy = (
            f"Use more microbatches: with {4 * microbatches} of them, it is "
            f"{share_text((stages - 1) / (4 * microbatches + stages - 1), 0)}. Or give each device several "
            "stages in turn."
        )
        yield finding(
            "note", CODE, message, remedy=remedy, ratio=iterations / microbatches,
            collective=largest.collective, source=largest.source, axes=largest.axes or (),
        )  # fmt: skip


def applies(context: AuditContext) -> bool:
    """Return whether the loops of a program are known."""
    return any(program.pipelines is not None for program in context.snapshot.programs)
