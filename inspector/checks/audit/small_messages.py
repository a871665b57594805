"""Messages to neighbors in a loop that are so small that latency decides, and not the bandwidth of a link."""

from __future__ import annotations

from collections.abc import Iterator

from inspector.checks.audit.context import AuditContext, finding
from inspector.compiled.op_name import parse_op_name
from inspector.core.formatting import bytes_text
from inspector.core.program_names import subject
from inspector.core.snapshot import Collective, Finding, Program
from inspector.machines.hardware import CHIPS, Torus
from inspector.machines.prediction.collective_cost import START_SECONDS

CODE = "small-messages"
_LEAST_MESSAGES = 16  # in one run of a program
# Operations that read the edge of a neighbor. Others, such as a matrix product, send a whole operand.
_HALO = frozenset({
    "ppermute", "concatenate", "slice", "pad", "conv_general_dilated", "dynamic_slice",
    "dynamic_update_slice", "scatter", "roll",
})  # fmt: skip
# What the slowest link of a TPU sends while a message starts and travels one hop. A GPU needs as long.
LATENCY_BYTES = min(
    chip.network.bytes_per_second * (START_SECONDS + chip.network.hop_seconds)
    for chip in CHIPS.values()
    if isinstance(chip.network, Torus)
)


def findings(context: AuditContext) -> Iterator[Finding]:
    """Yield a note per program that sends many messages of at most half of `LATENCY_BYTES`."""
    for program in context.snapshot.programs:
        small = [c for c in program.collectives or () if _is_small(c, program)]
        messages = sum(collective.executions or 0 for collective in small)
        if messages < _LEAST_MESSAGES:
            continue
        largest = max(small, key=lambda collective: collective.payload_bytes or 0)
        at = f" at {largest.source}" if largest.source else ""
        message = (
            f"{subject(program.name)} sends {messages} messages of at most "
            f"{bytes_text(largest.payload_bytes)} to neighbors in a loop{at}. Until one arrives, the slowest "
            f"link of a TPU sends {bytes_text(int(LATENCY_BYTES))}: they cost time by their number, not by "
            "their size."
        )
        remedy = (
            "Send more at once. A stencil can exchange several rows every several iterations, and compute "
            "the rows of its neighbors in between."
        )
        yield finding(
            "note", CODE, message, remedy=remedy, collective=largest.name, source=largest.source,
            axes=largest.axis_names,
        )  # fmt: skip


def _is_small(collective: Collective, program: Program) -> bool:
    """Return whether it is a small exchange with neighbors in a loop, and not that of a pipeline."""
    return (
        collective.op == "collective-permute"
        and (collective.executions or 0) > 1
        and 0 < 2 * (collective.payload_bytes or 0) <= LATENCY_BYTES
        and collective.name not in {pipeline.collective for pipeline in program.pipelines or ()}
        and bool({name.primitive for name in parse_op_name(collective.op_name)} & _HALO)
    )
