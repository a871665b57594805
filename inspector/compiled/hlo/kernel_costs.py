"""The cost of a custom kernel, as its author states it.

Pallas writes the `cost_estimate` of a `pallas_call` into the custom call for a TPU, and XLA's own cost
analysis counts it. A kernel without an estimate has known bytes (its operands and results), but no known
FLOPs.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from inspector.compiled.hlo.module import Instruction
from inspector.compiled.hlo.shapes import MAX_COUNT, Shape

_ESTIMATE = re.compile(r'"cost_estimate"\s*+:\s*+\{([^{}]{0,400})\}')
_FIELD = re.compile(r'"(flops|bytes_accessed)"\s*+:\s*+"?(\d{1,18})\b')


class KernelCost(NamedTuple):
    """FLOPs and bytes of one execution, as the kernel states them. None if it does not."""

    flops: int | None
    bytes: int | None


def stated(instruction: Instruction) -> KernelCost | None:
    """Return the cost that a custom kernel states; None for other instructions, and if it states nothing."""
    if instruction.opcode != "custom-call":
        return None
    estimate = _ESTIMATE.search(instruction.attributes_text)
    if estimate is None:
        return None
    fields = {name: int(count) for name, count in _FIELD.findall(estimate[1])}
    flops, moved = fields.get("flops"), fields.get("bytes_accessed")
    # An estimate of 0 bytes is one of FLOPs alone.
    return KernelCost(
        flops if flops is None or flops <= MAX_COUNT else None,
        moved if moved and moved <= MAX_COUNT else None,
    )


def operand_type(operands: list[Shape | None]) -> str | None:
    """Return the widest type of at least 16 bits among the operands: that of the kernel's products."""
    floats = [operand for operand in operands if operand is not None and (operand.element_bits or 0) >= 16]
    return max(floats, key=lambda operand: operand.element_bits or 0).dtype if floats else None
