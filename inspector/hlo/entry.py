"""The inputs and outputs of a program, from the entry computation of its text."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from inspector.hlo import shapes, shardings, text
from inspector.hlo.module import Instruction, Module
from inspector.hlo.shapes import Shape
from inspector.hlo.shardings import HloSharding, NamedMesh
from inspector.text.errors import InvalidInput

_MESHES = "xla.sdy.meshes"
_SDY_SHARDING = "xla.sdy.sharding"
_FRONTEND_SDY = re.compile(rf'{re.escape(_SDY_SHARDING)}\s*+=\s*+("(?:[^"\\]++|\\.)*+")', re.S)
_ALIAS = re.compile(r"\{[\d,\s]*\}\s*:\s*\(\s*(\d{1,9})")
_LAYOUT = re.compile(rf"\{{({text.GROUP})\s*+->\s*+(.*)\}}\Z", re.S)
_PARTITIONED = "_spmd"  # the end of the entry's name after XLA's partitioner


@dataclass(frozen=True)
class EntryValue:
    """One array among the inputs or outputs of a program.

    Attributes:
      shape: its shape in this text: of one shard after partitioning. None if unknown.
      op_name: JAX's name of the argument; "" if unknown.
      memory_space: XLA's number of the memory that holds it.
      sharding: None if the text does not contain it.
      problem: why a written sharding cannot be read. None if it can.
    """

    shape: Shape | None
    op_name: str = ""
    memory_space: int = 0
    sharding: HloSharding | None = None
    problem: str | None = None


def is_partitioned(module: Module) -> bool:
    """Return whether the shapes of a text are those of one device, as after XLA's partitioner.

    Only a text with shardings and without the partitioner's marks is one from before.
    """
    scheduled = module.attributes.get("is_scheduled") == "true"
    if module.partitions == 1 or scheduled or (module.entry or "").endswith(_PARTITIONED):
        return True
    return not named_meshes(module) and not any(
        value.sharding for value in (*(inputs(module) or ()), *(outputs(module) or ()))
    )


def named_meshes(module: Module) -> dict[str, NamedMesh]:
    """Return the meshes that Shardy wrote into the header, by name."""
    written = module.attributes.get("frontend_attributes", "")
    start = written.find(_MESHES)
    return {} if start < 0 else shardings.sdy_meshes(written[start + len(_MESHES) :])


def inputs(module: Module) -> tuple[EntryValue, ...] | None:
    """Return the inputs in order, those in tuples one by one. Return None if the text lacks the entry."""
    entry = module.by_name.get(module.entry or "")
    if entry is None or not entry.complete:
        return None
    meshes, (laid_out, _) = named_meshes(module), layouts(module)
    parameters = entry.parameters
    if set(parameters) != set(range(len(parameters))):
        return None
    values: list[EntryValue] = []
    for number in range(len(parameters)):
        parameter = parameters[number]
        values += _values(parameter, meshes, parameter.metadata.get("op_name", ""))
    return _in_memory(values, laid_out)


def outputs(module: Module) -> tuple[EntryValue, ...] | None:
    """Return the outputs in order. Return None if the text lacks the entry."""
    entry = module.by_name.get(module.entry or "")
    if entry is None or entry.root is None:
        return None
    return _in_memory(_values(entry.root, named_meshes(module)), layouts(module)[1])


def donated(module: Module) -> frozenset[int]:
    """Return the numbers of the inputs whose memory outputs reuse."""
    written = module.attributes.get("input_output_alias", "")
    return frozenset(int(number) for number in _ALIAS.findall(written))


def layouts(module: Module) -> tuple[list[Shape], list[Shape]]:
    """Return the shapes of inputs and outputs in the header, which alone has their memory spaces."""
    match = _LAYOUT.match(module.attributes.get("entry_computation_layout", ""))
    if match is None:
        return [], []
    inputs, outputs = (shapes.parse(match[number].strip()) for number in (1, 2))
    return _arrays(inputs), _arrays(outputs)


def _arrays(shape: Shape | None) -> list[Shape]:
    """Return the arrays of a shape, those in tuples one by one."""
    if shape is None or shape.parts is None:
        return [] if shape is None else [shape]
    return [array for part in shape.parts for array in _arrays(part)]


def _in_memory(values: Sequence[EntryValue], laid_out: Sequence[Shape]) -> tuple[EntryValue, ...]:
    if len(values) != len(laid_out):
        return tuple(values)
    return tuple(
        replace(value, memory_space=shape.memory_space) for value, shape in zip(values, laid_out, strict=True)
    )


def _values(instruction: Instruction, meshes: Mapping[str, NamedMesh], name: str = "") -> list[EntryValue]:
    shape = instruction.shape
    parts = [shape] if shape is None or shape.parts is None else list(shape.parts)
    attributes = instruction.attributes
    hlo_shardings: list[HloSharding | None] = []
    problem = None
    sdy = _FRONTEND_SDY.search(attributes.get("frontend_attributes", ""))
    try:
        if sdy and len(parts) == 1:
            hlo_shardings = [shardings.parse_sdy(text.unquoted(sdy[1]), meshes)]
        elif "sharding" in attributes:
            hlo_shardings = [*map(shardings.parse, shardings.parse_all(attributes["sharding"]))]
    except InvalidInput as refused:
        problem = str(refused)
    if len(hlo_shardings) != len(parts):
        hlo_shardings = [None] * len(parts)
    return [
        EntryValue(part, name, 0 if part is None else part.memory_space, sharding, problem)
        for part, sharding in zip(parts, hlo_shardings, strict=True)
    ]
