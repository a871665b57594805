"""The iterations of a pipeline in which stages have no microbatch."""

from collections.abc import Iterator

from inspector.checks.audit.context import AuditContext, finding
from inspector.core import pipelines
from inspector.core.formatting import share_text
from inspector.core.program_names import subject
from inspector.core.snapshot import Finding, Pipeline

CODE = "pipeline-bubble"
# A tenth of all iterations: 9 microbatches for each stage but one.
_LEAST_SHARE = 0.1


def findings(context: AuditContext) -> Iterator[Finding]:
    """Yield a note per program with a pipeline whose bubble is a tenth of its work or more."""
    for program in context.snapshot.programs:
        largest = max(program.pipelines or (), key=lambda pipeline: pipeline.bubble or 0.0, default=None)
        if largest is None or (largest.bubble or 0.0) < _LEAST_SHARE or largest.iterations is None:
            continue
        useful = max(largest.iterations - largest.idle, 1)
        said = pipelines.bubble(largest)
        if largest.microbatches:
            said += f" It is {largest.iterations / useful:.3g} times the work."
        message = f"{subject(program.name)} runs {pipelines.what(largest)}. {said}"
        yield finding(
            "note", CODE, message, remedy=_remedy(largest), ratio=largest.iterations / useful,
            collective=largest.collective, source=largest.source, axes=largest.axes or (),
        )  # fmt: skip


def _remedy(pipeline: Pipeline) -> str:
    more, useful = "Use more microbatches", 4 * (pipeline.microbatches or 0) * pipeline.repeats
    if useful:
        share = share_text(pipeline.idle / (useful + pipeline.idle), 0)
        more += f": with {4 * (pipeline.microbatches or 0)} of them, it is {share}"
    return f"{more}." + (" Or give each device several stages in turn." if pipeline.repeats == 1 else "")


def applies(context: AuditContext) -> bool:
    """Return whether the loops of a program are known."""
    return any(program.pipelines is not None for program in context.snapshot.programs)
