"""Text about programs that JAX refuses to trace on explicit mesh axes."""

from inspector.core.snapshot import OperandType, ShardingError


def sentence(error: ShardingError) -> str:
    """Return the operation, its source line, its operands and JAX's message."""
    place = f" at {error.source}" if error.source else ""
    operands = "".join(f", {operand.name} {type_text(operand)}" for operand in error.operands)
    return f"JAX refuses {error.operation or 'the program'}{place}{operands}: {error.message}"


def type_text(operand: OperandType) -> str:
    """Return a type as JAX prints it: `float32[8@data,1024]`."""
    dimensions = [
        f"{size}@{axes[0] if len(axes) == 1 else '(' + ','.join(axes) + ')'}" if axes else str(size)
        for size, axes in zip(operand.shape, operand.spec, strict=True)
    ]
    return f"{operand.dtype}[{','.join(dimensions)}]"
