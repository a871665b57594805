"""Collective-permutes that are so small that latency decides, and not the bandwidth of a link."""

from collections.abc import Iterator

from inspector.audit.context import LEAST_SHARE, AuditContext, finding
from inspector.machines.hardware import CHIPS, Torus
from inspector.prediction.collective_cost import START_SECONDS
from inspector.records.snapshot import Collective, Finding, Program
from inspector.sharding.traffic import executions_of, wire_bytes_of_run
from inspector.text.formatting import bytes_text
from inspector.text.program_names import subject

CODE = "small-messages"
_LEAST_EXECUTIONS = 16  # in one run of a program
# Bytes that the slowest link of a TPU sends while a message starts and goes one hop. A GPU needs as long.
LATENCY_BYTES = min(
    chip.network.bytes_per_second * (START_SECONDS + chip.network.hop_seconds)
    for chip in CHIPS.values()
    if isinstance(chip.network, Torus)
)


def findings(context: AuditContext) -> Iterator[Finding]:
    """Yield a note per program that executes many permutes of at most half of `LATENCY_BYTES`.

    Only some devices can send in each, to any others, so it counts executions.
    """
    for program in context.programs:
        small = [c for c in program.collectives or () if _is_small(c, program)]
        executions = executions_of([c for c in small if c.executions is not None]) or 0
        everything = wire_bytes_of_run(*program.collectives or ()) or 0
        if executions < max(_LEAST_EXECUTIONS, LEAST_SHARE * everything / LATENCY_BYTES):
            continue
        largest = max(small, key=lambda collective: collective.payload_bytes or 0)
        which = ", the largest" if len({collective.source for collective in small}) > 1 else ""
        at = f"{which} at {largest.source}" if largest.source else ""
        up_to = "up to " if any(collective.conditional for collective in small) else ""
        message = (
            f"{subject(program.name)} executes collective-permutes of at most "
            f"{bytes_text(largest.payload_bytes)} {up_to}{executions} times in one run{at}. Until one "
            f"message arrives, the slowest link of a TPU sends {bytes_text(int(LATENCY_BYTES))}: they cost "
            "time by their number, not by their size."
        )
        yield finding(
            "note", CODE, message, collective=largest.name, source=largest.source, axes=largest.axis_names
        )


def _is_small(collective: Collective, program: Program) -> bool:
    """Return whether it is a small permute, and not that of a pipeline."""
    return (
        collective.op == "collective-permute"
        and 0 < 2 * (collective.payload_bytes or 0) <= LATENCY_BYTES
        and collective.name not in {pipeline.collective for pipeline in program.pipelines or ()}
    )
