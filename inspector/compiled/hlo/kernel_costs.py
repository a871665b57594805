"""The cost of a custom kernel, as its author states it, and the name by which a user knows it.

Pallas writes the `cost_estimate` of a `pallas_call` into the custom call for a TPU, and XLA's own cost
analysis counts it. A kernel without an estimate has known bytes (its operands and results), but no known
FLOPs.
"""

import re
from typing import NamedTuple

from inspector.compiled.hlo.module import Instruction
from inspector.compiled.hlo.shapes import MAX_COUNT, Shape

# As JSON, or as a string of JSON.
ESTIMATE = re.compile(r'\\?"cost_estimate\\?"\s*+:\s*+\{([^{}]{0,400})\}')
_FIELD = re.compile(r'"(flops|bytes_accessed)\\?"\s*+:\s*+\\?"?(\d{1,18})\b')
# Targets of all kernels of a compiler for kernels: that of Pallas for TPUs, Triton, and Pallas for GPUs.
_COMPILERS = re.compile(r"tpu_custom_call|__gpu\$xla\.gpu\.triton|triton_kernel_call|mosaic_gpu\w*")
_NAMED = re.compile(r'\bname\s*+=\s*+"([\w.$-]{1,200})"')


_FLOAT = re.compile(r"b?f\d")
_FUNCTION = re.compile(r"jit\((.+)\)")


class KernelCost(NamedTuple):
    """FLOPs and bytes of one execution, as the kernel states them. None if it does not."""

    flops: int | None
    bytes: int | None


def stated(instruction: Instruction) -> KernelCost | None:
    """Return the cost that a custom kernel states; None for other instructions, and if it states nothing."""
    if instruction.opcode != "custom-call":
        return None
    estimate = ESTIMATE.search(instruction.attributes_text)
    if estimate is None:
        return None
    fields = {name: int(count) for name, count in _FIELD.findall(estimate[1])}
    flops, moved = fields.get("flops"), fields.get("bytes_accessed")
    # An estimate of 0 bytes is one of FLOPs alone.
    return KernelCost(
        flops if flops is None or flops <= MAX_COUNT else None,
        moved if moved and moved <= MAX_COUNT else None,
    )


def stated_bytes(instruction: Instruction) -> int | None:
    """Return the bytes that a custom kernel states to read and write; None if it does not."""
    cost = stated(instruction)
    return None if cost is None else cost.bytes


def name_of(instruction: Instruction) -> str:
    """Return the name of the kernel that a custom call runs: its own, or else the target of the call."""
    target = instruction.target
    if not _COMPILERS.fullmatch(target):
        return target or "a custom call without a target"
    written = _NAMED.search(instruction.attributes_text)
    path = instruction.metadata.get("op_name", "").split("/")
    if written is not None and target != "tpu_custom_call":
        return written[1]
    own = path[-2] if len(path) > 1 and path[-1].startswith("pallas_call") else path[-1]
    function = _FUNCTION.fullmatch(own)
    return (function[1] if function else own) or target


def operand_type(operands: list[Shape | None]) -> str | None:
    """Return the type of a kernel's products: that of its largest operand of floating-point numbers.

    Sizes of groups, positions and masks are integers, and weights can be quantized to integers, so these
    count only if there is nothing else. Return None without operands.
    """
    arrays = [operand for operand in operands if operand is not None and operand.elements]
    floats = [array for array in arrays if _FLOAT.match(array.dtype)]
    largest = max(floats or arrays, key=lambda array: array.elements or 0, default=None)
    return None if largest is None else largest.dtype
