"""All operations of an MLIR module, and its main function."""

from __future__ import annotations

from typing import Any

from jax.extend.mlir import ir


def operations(operation: Any, inner_first: bool = False) -> list[Any]:
    """Return the operations inside of an operation, each before those inside of it, or else after them.

    MLIR's own walk takes half as long as loops over regions and blocks.
    """
    found: list[Any] = []

    def visit(each: Any) -> Any:
        found.append(each)
        return ir.WalkResult.ADVANCE

    operation.walk(visit, ir.WalkOrder.POST_ORDER if inner_first else ir.WalkOrder.PRE_ORDER)
    return found[:-1] if inner_first else found[1:]


def text_of(module: ir.Module, debug_info: bool = True) -> str:
    """Return the text of a module, by default with the locations of its operations."""
    return str(module.operation.get_asm(enable_debug_info=debug_info))


def named_attributes(attribute: Any) -> dict[str, Any]:
    """Return the attributes in a dictionary attribute by name. Its type in JAX has no iterator."""
    entries: Any = ir.DictAttr(attribute)
    return {entry.name: entry.attr for entry in entries}


def main_function(module: Any) -> Any:
    """Return the function that the program of a module's operation runs."""
    return next(
        operation.operation
        for operation in module.regions[0].blocks[0].operations
        if operation.operation.name == "func.func"
        and ir.StringAttr(operation.operation.attributes["sym_name"]).value == "main"
    )
