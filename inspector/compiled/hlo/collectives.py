"""Collectives of a program: executions, devices, mesh axes and bytes of each."""

from __future__ import annotations

import functools
import math
import re

import numpy as np

from inspector.compiled.hlo import replica_groups, text
from inspector.compiled.hlo.analysis import Analysis
from inspector.compiled.hlo.asynchronous import begun
from inspector.compiled.hlo.module import Computation, Instruction, Module
from inspector.compiled.hlo.replica_groups import Groups, Mode
from inspector.compiled.hlo.shapes import Shape, total_bytes
from inspector.core.collectives import BY_OPCODE
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Collective, Mesh
from inspector.core.typed_json import LARGEST

_SIZE = re.compile(r"\d{1,18}")
_GENERATED = re.compile(r'\bis_spmd_generated\s*+=\s*+"?true\b')


def collectives(
    module: Module, mesh: Mesh | None = None, analysis: Analysis | None = None
) -> tuple[Collective, ...]:
    """Return each collective in the order of the text, an asynchronous one at its start.

    mesh: the mesh for which the program was compiled; without it `mesh_axes` is None.

    Raises:
      InvalidInput: `replica_groups` or `source_target_pairs` of a collective are invalid.
    """
    instructions = [
        (computation, instruction)
        for computation, instruction in module.instructions
        if instruction.opcode in BY_OPCODE
    ]
    if not instructions:
        return ()
    analysis = analysis or Analysis(module)
    return tuple(
        _collective(analysis, computation, instruction, mesh)
        for computation, instruction in instructions
        if (computation.name, instruction.name) not in analysis.chains.carried_on
    )


def _partners(
    module: Module, instruction: Instruction, mesh: Mesh | None
) -> tuple[Groups | None, Groups | None]:
    """Return the groups of devices that communicate, and the (source, target) pairs of a permute.

    Both are positions in the device assignment. Groups are None if their number of devices is unknown.
    """
    operation = BY_OPCODE[instruction.opcode]
    attributes = instruction.attributes
    try:
        flag = attributes.get("use_global_device_ids", "false") == "true"
        mode = replica_groups.mode(
            "channel_id" in attributes, flag if operation.global_ids else None
        )
        if operation.route == "pairs":
            written = replica_groups.pairs(attributes.get("source_target_pairs", "{}"))
            pairs = _positions(module, written, mode) or ()
            return replica_groups.connected(pairs), pairs
        groups = replica_groups.expand(attributes.get("replica_groups", "{}"))
        positions = _positions(module, groups, mode)
    except InvalidInput as error:
        raise InvalidInput(f"{instruction.name}: {error}") from None
    if positions is None and mesh is not None:
        positions = (tuple(range(mesh.size)),)
    return positions, None


def _positions(module: Module, groups: Groups, mode: Mode) -> Groups | None:
    """Convert ids to positions. Return None if all devices communicate and their number is unknown."""
    counted = module.replicas is not None or module.partitions is not None
    replicas, partitions = module.replicas or 1, module.partitions or 1
    highest = max((max(group, default=-1) for group in groups), default=-1)
    ids = partitions if mode == "cross_partition" else replicas
    # Some texts lack the number of devices, or the channel that partitions need. An id beyond those of the
    # mode is a position.
    if groups and mode != "flattened_id" and (not counted or highest >= ids):
        return groups
    if not groups and mode != "flattened_id" and not counted:
        return None
    return replica_groups.participants(groups, mode, replicas, partitions)


def _payload_bytes(
    computation: Computation, instruction: Instruction, group: int | None
) -> int | None:
    """Return the bytes of one execution on one device by the operation's payload rule; None if unknown."""
    operation = BY_OPCODE[instruction.opcode]
    result = begun(instruction).shape
    operands = tuple(computation.shape_of(operand) for operand in instruction.operands)
    if operation.payload == "result":
        return result.bytes if result else None
    if operation.payload == "first operand":
        operands = operands[:1]
    if operation.route == "chain" and instruction.attributes.get("has_dynamic_root") == "true":
        operands = operands[:-1]
    # With operands (input, output, offsets) only the stated slices of the input are sent.
    if operation.route == "pairs" and "slice_sizes" in instruction.attributes:
        return _sliced_bytes(instruction, operands[0] if operands else None)
    size = total_bytes(operands) if operands else None
    if size is None and result is not None and result.bytes is not None:
        # A truncated text can lack the operand. The result has the size of the operand or of a shard.
        if not operation.result_is_shard:
            return result.bytes
        return result.bytes * group if group else None
    return size


def _collective(
    analysis: Analysis, computation: Computation, instruction: Instruction, mesh: Mesh | None
) -> Collective:
    module, operation = analysis.module, BY_OPCODE[instruction.opcode]
    groups, pairs = _partners(module, instruction, mesh)
    sizes = {len(one) for one in groups or ()}
    group_size = sizes.pop() if len(sizes) == 1 else None  # None if groups differ in size
    idle = pairs is not None and all(source == target for source, target in pairs)
    group = 1 if idle else group_size
    payload = _countable(_payload_bytes(computation, instruction, group))
    axes = None
    # A shift without wrap-around does not form whole groups, so pairs are not compared as groups.
    if mesh and pairs is not None:
        axes = axes_of_pairs(pairs, mesh)
    elif mesh and groups is not None:
        axes = axes_of_groups(groups, mesh)
    runs = analysis.runs[computation.name]
    metadata = instruction.metadata
    generated = _GENERATED.search(instruction.attributes.get("frontend_attributes", ""))
    return Collective(
        op=operation.name,
        asynchronous=instruction.opcode != operation.name
        or runs.asynchronous
        or (computation.name, instruction.name) in analysis.chains.started,
        name=instruction.name,
        computation=computation.name,
        executions=runs.count,
        conditional=runs.conditional,
        mesh_axes=axes,
        group_size=group_size,
        groups=None if groups is None else len(groups),
        payload_bytes=payload,
        wire_bytes_per_device=_countable(operation.wire_bytes(payload, group)),
        op_name=metadata.get("op_name") or None,
        source=module.source(metadata),
        spmd_generated=True if generated else None,
        source_target_pairs=None if pairs is None else tuple((pair[0], pair[1]) for pair in pairs),
        device_groups=groups if mesh and axes is None and pairs is None else None,
    )


def axes_of_groups(groups: Groups, mesh: Mesh) -> tuple[str, ...] | None:
    """Return the mesh axes, in mesh order, whose product forms exactly these groups; None if there are none.

    Axes of size 1 are omitted. Groups of one device are formed by no axes: ().
    """
    numbers = _axes_of_groups(groups, mesh.shape)
    return None if numbers is None else tuple(mesh.axis_names[number] for number in numbers)


def axes_of_pairs(pairs: Groups, mesh: Mesh) -> tuple[str, ...] | None:
    """Return the mesh axes along which a source and its target differ; None if one is not on the mesh."""
    ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    if ends.size and ends.max() >= mesh.size:
        return None
    source, target = (np.array(np.unravel_index(side, mesh.shape)) for side in ends.T)
    differs = (source != target).any(axis=1)
    return tuple(name for name, moved in zip(mesh.axis_names, differs, strict=True) if moved)


@functools.lru_cache(maxsize=64)
def _axes_of_groups(groups: Groups, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    positions = np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape)
    named = np.array([position for group in groups for position in group], dtype=np.int64)
    if not np.array_equal(np.sort(named), positions.reshape(-1)):
        return None
    first = np.empty(named.size, dtype=np.int64)  # lowest position in the group of each position
    sizes = [len(group) for group in groups]
    first[named] = np.repeat([min(group) for group in groups if group], [n for n in sizes if n])
    with_zero = np.flatnonzero(first == first[0])
    coordinates = np.array(np.unravel_index(with_zero, shape)).reshape(len(shape), -1)
    axes = tuple(np.flatnonzero((coordinates > 0).any(axis=1)).tolist())
    # In groups along these axes, the lowest position is that with index 0 along all of them.
    at_zero = tuple(slice(0, 1) if axis in axes else slice(None) for axis in range(len(shape)))
    expected = np.broadcast_to(positions[at_zero], shape).reshape(-1)
    return axes if np.array_equal(first, expected) else None


def _sliced_bytes(instruction: Instruction, operand: Shape | None) -> int | None:
    """Return the bytes of the slices of an array or of each array of a tuple, all of the same type."""
    if operand is None:
        return None
    each = {part.element_bits for part in operand.parts or (operand,)}
    bits = each.pop() if len(each) == 1 else None
    if bits is None:
        return None
    total = 0
    for sizes in text.items(instruction.attributes["slice_sizes"]):
        count = math.prod(int(size) for size in _SIZE.findall(sizes))
        total += -(-count * bits // 8)
    return total


def _countable(size: int | None) -> int | None:
    """Return the size, or None if it exceeds the limit of a Snapshot, as in invalid text."""
    return size if size is not None and size <= LARGEST else None
