"""All operations of an MLIR module, and its main function."""

from collections.abc import Iterable
from io import BytesIO
from typing import Any

from jax.extend.mlir import ir


def of_module(module: ir.Module) -> bytes:
    """Return the bytecode of an `ir.Module`."""
    buffer = BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def operations(operation: ir.Operation, inner_first: bool = False) -> list[ir.Operation]:
    """Return the operations inside of an operation, each before those inside of it, or else after them.

    MLIR's own walk takes half as long as loops over regions and blocks.
    """
    inside: list[ir.Operation] = []

    def visit(inner: ir.Operation) -> ir.WalkResult:
        inside.append(inner)
        return ir.WalkResult.ADVANCE

    operation.walk(visit, ir.WalkOrder.POST_ORDER if inner_first else ir.WalkOrder.PRE_ORDER)
    return inside[:-1] if inner_first else inside[1:]


def text_of(module: ir.Module, debug_info: bool = True) -> str:
    """Return the text of a module, by default with the locations of its operations."""
    return str(module.operation.get_asm(enable_debug_info=debug_info))


def named_attributes(attribute: ir.Attribute) -> dict[str, ir.Attribute]:
    """Return the attributes in a dictionary attribute by name. Its type in JAX has no iterator."""
    entries: Any = ir.DictAttr(attribute)
    return {entry.name: entry.attr for entry in entries}


def signature_attributes(function: ir.Operation, key: str, count: int = 0) -> list[dict[str, ir.Attribute]]:
    """Return those of all arguments (`arg_attrs`) or results (`res_attrs`), or `count` empty ones."""
    if key not in function.attributes:
        return [{} for _ in range(count)]
    return [named_attributes(entry) for entry in ir.ArrayAttr(function.attributes[key])]


def set_signature_attributes(
    function: ir.Operation, key: str, listed: Iterable[dict[str, ir.Attribute]]
) -> None:
    """Give a function the attributes of all arguments (`arg_attrs`) or results (`res_attrs`)."""
    entries = [ir.DictAttr.get(named, function.context) for named in listed]
    function.attributes[key] = ir.ArrayAttr.get(entries, function.context)


def function_type(function: ir.Operation) -> ir.FunctionType:
    """Return the type of a function, which has `inputs` and `results`."""
    return ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value)


def main_function(module: ir.Operation) -> ir.Operation:
    """Return the function that the program of a module's operation runs."""
    return symbols(module, "func.func")["main"]


def symbols(module: ir.Operation, kind: str) -> dict[str, ir.Operation]:
    """Return the functions, or other operations of one kind, in a module's operation by name."""
    return {
        ir.StringAttr(operation.attributes["sym_name"]).value: operation.operation
        for operation in module.regions[0].blocks[0].operations
        if operation.operation.name == kind
    }
