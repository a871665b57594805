"""Arguments and results of `main` as operations, while passes write to them one by one.

Shardy keeps the shardings and notes of a function's arguments in one list. Each change of one argument
copies the list, and MLIR keeps every copy until its context ends: 10,000 arguments took 2.6 GB. An operation
has its own attributes. So arguments become operations before propagation, and results that have no sharding
are read by one. Afterwards all return to the signature at once.

Propagation treats both alike: no sharding rule connects these operations to anything.
"""

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jax.extend.mlir import ir
from jax.extend.mlir.dialects import sdy

from inspector.partition.history import NAME, ORIGINS
from inspector.partition.shardings import (
    SHARDING,
    axes_of_dimensions,
    closed_dimensions,
    sharding_of,
    tensor_sharding,
)
from inspector.tracing.mlir.walk import (
    function_type,
    main_function,
    operations,
    set_signature_attributes,
    signature_attributes,
)

# A signature of more arguments and results is outlined. 1,000 cost 8 MB when all are written once.
FEW = 1_000
_ARGUMENT, _RESULT = "inspector.argument", "inspector.result"
_KEYS = ("arg_attrs", "res_attrs")
_CALL = "stablehlo.custom_call"
_ORIGINS_OF_SEVERAL = ("sdy.result_sharding_origins", "sdy.block_arg_sharding_origins")
_SOURCE = re.compile(r'"(constraint_\d+|input: \d+|output: \d+)"')


@dataclass
class Outlined:
    """The signature that `restore` gives back to a function.

    Attributes:
      function: `main`.
      arguments: the attributes of each argument; those of an operation without the sharding.
      values: the operation behind each argument; None for one that is still an argument.
      results: the attributes of each result.
      readers: the operation that reads each result without a sharding; None for one that is still a result.
    """

    function: ir.Operation
    arguments: list[dict[str, ir.Attribute]]
    values: list[ir.Operation | None]
    results: list[dict[str, ir.Attribute]]
    readers: list[ir.Operation | None]


def outline(module: ir.Operation, origins: bool) -> Outlined | None:
    """Replace the arguments of `main`, and the results without a sharding. Return None if at most `FEW`.

    An argument with an open dimension stays, because propagation can add to it as to no operation.

    Args:
      module: the operation of a module, which is changed.
      origins: name the arguments as sources of shardings: each is then behind a sharding constraint.
    """
    function = main_function(module)
    block = function.regions[0].blocks[0]
    kind = function_type(function)
    if len(kind.inputs) + len(kind.results) <= FEW:
        return None
    arguments = signature_attributes(function, "arg_attrs", len(kind.inputs))
    results = signature_attributes(function, "res_attrs", len(kind.results))
    values: list[ir.Operation | None] = []
    with ir.InsertionPoint.at_block_begin(block):
        for argument, attributes in zip(list(block.arguments), arguments, strict=True):
            sharding = attributes.get(SHARDING)
            if sharding is not None:
                sharding = sdy.TensorShardingAttr(sharding)
                if not all(closed_dimensions(sharding)):
                    values.append(None)
                    continue
            attributes.pop(SHARDING, None)
            value = _call(_ARGUMENT, [argument.type], [], argument.location)
            if sharding is not None:
                if origins:
                    with argument.location:
                        value = sdy.ShardingConstraintOp(value.results[0], sharding).operation
                else:
                    value.attributes[SHARDING] = sdy.TensorShardingPerValueAttr.get([sharding])
            argument.replace_all_uses_with(value.results[0])
            values.append(value)
    end = _return(block)
    returned = list(end.operands)
    readers: list[ir.Operation | None] = []
    with ir.InsertionPoint(end):
        for result, attributes in zip(returned, results, strict=True):
            free = SHARDING not in attributes
            readers.append(_call(_RESULT, [], [result], end.location) if free else None)
        kept = [result for result, reader in zip(returned, readers, strict=True) if reader is None]
        ir.Operation.create("func.return", [], kept, loc=end.location)
    end.erase()
    for number in reversed(_kept(values, False)):
        block.erase_argument(number)
    _set_signature(
        function,
        [argument.type for argument in block.arguments],
        [result.type for result in kept],
        [arguments[number] for number in _kept(values)],
        [results[number] for number in _kept(readers)],
    )
    return Outlined(function, arguments, values, results, readers)


def restore(outlined: Outlined) -> None:
    """Give `main` its signature back, with the shardings and notes that passes have left."""
    function = outlined.function
    block = function.regions[0].blocks[0]
    kept = list(block.arguments)
    _name_sources(outlined)
    arguments, results = outlined.arguments, outlined.results
    for key, listed, places in (
        ("arg_attrs", arguments, _kept(outlined.values)),
        ("res_attrs", results, _kept(outlined.readers)),
    ):
        kept_attributes = signature_attributes(function, key, len(places))
        for number, attributes in zip(places, kept_attributes, strict=True):
            listed[number] = attributes
    end = _return(block)
    others = iter(list(end.operands))
    returned = []
    for number, reader in enumerate(outlined.readers):
        value = next(others) if reader is None else reader.operands[0]
        if reader is not None:
            # Before the arguments return, because an argument can be a result.
            results[number] = results[number] | _notes_of_result(value)
            reader.erase()
        returned.append(value)
    with ir.InsertionPoint(end):
        ir.Operation.create("func.return", [], returned, loc=end.location)
    end.erase()
    old = iter(kept)
    for number, value in enumerate(outlined.values):
        if value is None:
            argument = next(old)
            argument.replace_all_uses_with(block.add_argument(argument.type, argument.location))
            continue
        result = value.results[0]
        arguments[number] = arguments[number] | _notes(result)
        call = value if value.name == _CALL else value.operands[0].owner.operation
        result.replace_all_uses_with(block.add_argument(result.type, value.location))
        value.erase()
        if call is not value:
            call.erase()
    for number in reversed(range(len(kept))):
        block.erase_argument(number)
    types = [argument.type for argument in block.arguments]
    _set_signature(function, types, [value.type for value in _return(block).operands], arguments, results)


def _kept(stand_ins: list[Any], kept: bool = True) -> list[int]:
    """Return the numbers of the arguments or results that stayed, or of those that did not."""
    return [number for number, value in enumerate(stand_ins) if (value is None) is kept]


@contextlib.contextmanager
def without_shardings(module: ir.Operation) -> Iterator[dict[str, list[Any]]]:
    """Take the shardings from the signature of `main`, and put them back in the end.

    Yields for `arg_attrs` and `res_attrs` the sharding of each argument and result, None for one without.
    XLA's conversions write them one by one too.
    """
    function = main_function(module)
    signature: dict[str, list[Any]] = {}
    before: dict[str, Any] = {}
    for key in _KEYS:
        if key in function.attributes:
            before[key] = function.attributes[key]
            listed = signature_attributes(function, key)
            signature[key] = [attributes.pop(SHARDING, None) for attributes in listed]
            set_signature_attributes(function, key, listed)
    try:
        yield signature
    finally:
        for key, attribute in before.items():
            function.attributes[key] = attribute


def add_shardings(module: ir.Operation, signature: dict[str, list[Any]]) -> None:
    """Give the signature of `main` the shardings that `without_shardings` took, perhaps from a copy."""
    function = main_function(module)
    parsed: dict[Any, Any] = {}
    for key, shardings in signature.items():
        if any(sharding is not None for sharding in shardings):
            listed = signature_attributes(function, key, len(shardings))
            for attributes, sharding in zip(listed, shardings, strict=True):
                if sharding is not None:
                    if sharding not in parsed:  # the copy can be in another context
                        parsed[sharding] = ir.Attribute.parse(str(sharding), function.context)
                    attributes[SHARDING] = parsed[sharding]
            set_signature_attributes(function, key, listed)


def close_signature(module: ir.Operation) -> None:
    """Close all dimensions of arguments and results at once, as `sdy-close-shardings` does one by one."""
    function = main_function(module)
    closed: dict[Any, Any] = {}
    for key in _KEYS:
        if key not in function.attributes:
            continue
        listed = signature_attributes(function, key)
        for named in listed:
            if SHARDING in named:
                sharding = named[SHARDING]
                if sharding not in closed:
                    closed[sharding] = _closed(sdy.TensorShardingAttr(sharding))
                named[SHARDING] = closed[sharding]
        set_signature_attributes(function, key, listed)


def _closed(sharding: sdy.TensorShardingAttr) -> sdy.TensorShardingAttr:
    dimensions = [
        sdy.DimensionShardingAttr.get(list(dimension.axes), is_closed=True)
        for dimension in map(sdy.DimensionShardingAttr, sharding.dimension_shardings)
    ]
    return sdy.TensorShardingAttr.get(
        sharding.mesh_or_ref, dimensions, list(sharding.replicated_axes), list(sharding.unreduced_axes)
    )


def _name_sources(outlined: Outlined) -> None:
    """Name the sources of shardings in all notes by the number that they have in the whole signature.

    An argument behind a constraint has the name of the constraint; others are counted without these.
    """
    names = {}
    for number, value in enumerate(outlined.values):
        if value is not None and NAME in value.attributes:
            names[ir.StringAttr(value.attributes[NAME]).value] = f"input: {number}"
    for kind, stand_ins in (("input", outlined.values), ("output", outlined.readers)):
        names |= {f"{kind}: {place}": f"{kind}: {number}" for place, number in enumerate(_kept(stand_ins))}
    if not names:
        return
    renamed: dict[ir.Attribute, ir.Attribute] = {}

    def new(note: ir.Attribute) -> ir.Attribute:
        if note not in renamed:
            text = _SOURCE.sub(lambda name: f'"{names.get(name[1], name[1])}"', str(note))
            renamed[note] = ir.Attribute.parse(text)
        return renamed[note]

    for operation in (*operations(outlined.function), outlined.function):
        for key in (ORIGINS, *_ORIGINS_OF_SEVERAL):
            if key in operation.attributes:
                operation.attributes[key] = new(operation.attributes[key])
    for key in _KEYS:
        if key in outlined.function.attributes:
            listed = signature_attributes(outlined.function, key)
            for attributes in listed:
                if ORIGINS in attributes:
                    attributes[ORIGINS] = new(attributes[ORIGINS])
            set_signature_attributes(outlined.function, key, listed)


def _notes(value: ir.Value) -> dict[str, Any]:
    """Return the sharding of a value and the note about its origins, like those of an argument."""
    notes: dict[str, Any] = {}
    sharding = sharding_of(value)
    if sharding is not None:
        notes[SHARDING] = sharding
    if isinstance(value.owner, ir.Block):
        return notes
    operation = value.owner.operation
    if ORIGINS in operation.attributes:
        note = operation.attributes[ORIGINS]
        number = ir.OpResult(value).result_number
        notes[ORIGINS] = ir.ArrayAttr(note)[number] if isinstance(note, ir.ArrayAttr) else note
    return notes


def _notes_of_result(value: ir.Value) -> dict[str, Any]:
    """Return the notes that a result without a sharding gets when this value is returned."""
    notes = _notes(value)
    sharding = notes.pop(SHARDING, None)
    if sharding is None:
        return notes
    axes = axes_of_dimensions(sharding)
    if any(axes):  # a result that gets no axis stays without a sharding
        notes[SHARDING] = tensor_sharding(sharding.mesh_or_ref, axes, [False] * len(axes))
    return notes


def _call(target: str, types: list[Any], operands: list[Any], location: ir.Location) -> ir.Operation:
    """Return a new operation that no pass removes, merges with another one, or propagates through."""
    return ir.Operation.create(
        _CALL,
        types,
        operands,
        {"call_target_name": ir.StringAttr.get(target), "has_side_effect": ir.BoolAttr.get(True)},
        loc=location,
    )


def _return(block: ir.Block) -> ir.Operation:
    return block.operations[len(block.operations) - 1].operation


def _set_signature(
    function: ir.Operation,
    inputs: list[Any],
    outputs: list[Any],
    arguments: list[dict[str, ir.Attribute]],
    results: list[dict[str, ir.Attribute]],
) -> None:
    kind = ir.FunctionType.get(inputs, outputs)
    function.attributes["function_type"] = ir.TypeAttr.get(kind)
    for key, listed in zip(_KEYS, (arguments, results), strict=True):
        if any(listed):
            set_signature_attributes(function, key, listed)
        elif key in function.attributes:
            del function.attributes[key]
