"""MLIR modules as bytecode, in which they go to files and to other processes."""

from io import BytesIO

from jax.extend.mlir import ir


def of_module(module: ir.Module) -> bytes:
    """Return the bytecode of an `ir.Module`."""
    buffer = BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()
