"""The collectives of a program: how often each runs, among which devices, and how many bytes it moves."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from inspector.compiled.hlo import replica_groups, text
from inspector.compiled.hlo.asynchronous import Chains, begun, chains
from inspector.compiled.hlo.calls import Runs, runs
from inspector.compiled.hlo.mesh_axes import axes_of_groups, axes_of_moves
from inspector.compiled.hlo.module import Computation, Instruction, Module
from inspector.compiled.hlo.replica_groups import Groups, Mode
from inspector.compiled.hlo.shapes import Shape, total_bytes
from inspector.core.collectives import BY_OPCODE, Operation
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Collective, Mesh
from inspector.core.typed_json import LARGEST

_SIZE = re.compile(r"\d{1,18}")
_GENERATED = re.compile(r'\bis_spmd_generated\s*+=\s*+"?true\b')


@dataclass(frozen=True)
class Partners:
    """Who talks to whom, as positions in the device assignment.

    `groups` is None where the text does not say how many devices there are; `moves` are the (source,
    target) pairs of a collective-permute, and None for every other op.
    """

    groups: Groups | None
    moves: tuple[tuple[int, int], ...] | None = None

    @property
    def group_size(self) -> int | None:
        """Devices in one group; None where that is not the same in all groups."""
        sizes = {len(group) for group in self.groups or ()}
        return sizes.pop() if len(sizes) == 1 else None


def collectives(
    module: Module, mesh: Mesh | None = None, known: Mapping[str, Runs] | None = None
) -> tuple[Collective, ...]:
    """Every collective of a program, in the order of the text; an asynchronous one where it starts.

    With the mesh that it was compiled for, each tells the mesh axes that it runs along.
    known: what `runs` says of the module, where that has been asked before.

    Raises:
      InvalidInput: replica groups, or pairs of a source and a target, are not such.
    """
    held = [
        (computation, instruction, BY_OPCODE[instruction.opcode])
        for computation in module.computations
        for instruction in computation.instructions
        if instruction.opcode in BY_OPCODE
    ]
    if not held:
        return ()
    shared = chains(module)
    known = runs(module) if known is None else known
    return tuple(
        _collective(
            module, computation, instruction, operation, mesh, known[computation.name], shared
        )
        for computation, instruction, operation in held
        if (computation.name, instruction.name) not in shared.carried_on
    )


def partners(module: Module, instruction: Instruction, devices: int | None = None) -> Partners:
    """Who talks to whom in a collective; `devices` counts when the module does not tell how many it has.

    Raises:
      InvalidInput: replica groups, or pairs of a source and a target, are not such.
    """
    operation = BY_OPCODE[instruction.opcode]
    attributes = instruction.attributes
    try:
        flag = attributes.get("use_global_device_ids", "false") == "true"
        mode = replica_groups.mode(
            "channel_id" in attributes, flag if operation.global_ids else None
        )
        if operation.route == "pairs":
            moves = replica_groups.pairs(attributes.get("source_target_pairs", "{}"))
            moves = tuple((pair[0], pair[1]) for pair in _positions(module, moves, mode) or ())
            return Partners(replica_groups.connected(moves), moves)
        groups = replica_groups.expand(attributes.get("replica_groups", "{}"))
        joined = _positions(module, groups, mode)
        if joined is None and devices is not None:
            joined = (tuple(range(devices)),)
        return Partners(joined)
    except InvalidInput as refused:
        raise InvalidInput(f"{instruction.name}: {refused}") from None


def _positions(module: Module, groups: Groups, mode: Mode) -> Groups | None:
    """Groups of the mode's ids as groups of positions; None where everyone is meant, but not counted."""
    counted = module.replicas is not None or module.partitions is not None
    replicas, partitions = module.replicas or 1, module.partitions or 1
    highest = max((at for group in groups for at in group), default=-1)
    ids = partitions if mode == "cross_partition" else replicas
    # Not every text says how many devices it is for, nor has the channel that goes with partitions; an
    # id that is none of the mode's ids can only be a position.
    if groups and mode != "flattened_id" and (not counted or highest >= ids):
        return groups
    if not groups and mode != "flattened_id" and not counted:
        return None
    return replica_groups.participants(groups, mode, replicas, partitions)


def payload_bytes(
    computation: Computation, instruction: Instruction, group: int | None
) -> int | None:
    """Bytes of one execution on one device: the operands, and of an all-gather the result.

    Of a ragged-all-to-all it is the whole input, because how much of it is sent only the run knows.
    """
    operation = BY_OPCODE[instruction.opcode]
    result = begun(instruction).shape
    operands = tuple(computation.shape_of(operand) for operand in instruction.operands)
    if operation.payload == "result":
        return result.bytes if result else None
    if operation.payload == "first operand":
        operands = operands[:1]
    if operation.route == "chain" and instruction.attributes.get("has_dynamic_root") == "true":
        operands = operands[:-1]
    # Of an input, an output and their offsets, the slices stated of the input are sent.
    if operation.route == "pairs" and "slice_sizes" in instruction.attributes:
        return _sliced_bytes(instruction, operands[0] if operands else None)
    size = total_bytes(operands) if operands else None
    if size is None and result is not None and result.bytes is not None:
        # The operand's instruction is not in the text; the result has its size, or a part of it.
        if not operation.result_is_shard:
            return result.bytes
        return result.bytes * group if group else None
    return size


def _collective(
    module: Module,
    computation: Computation,
    instruction: Instruction,
    operation: Operation,
    mesh: Mesh | None,
    known: Runs,
    shared: Chains,
) -> Collective:
    joined = partners(module, instruction, mesh.size if mesh else None)
    group = joined.group_size
    if joined.moves is not None and all(source == target for source, target in joined.moves):
        group = 1  # nothing leaves a device
    payload = _countable(payload_bytes(computation, instruction, group))
    metadata = instruction.metadata
    axes = _mesh_axes(joined, mesh) if mesh else None
    generated = _GENERATED.search(instruction.attributes.get("frontend_attributes", ""))
    return Collective(
        op=operation.name,
        asynchronous=instruction.opcode != operation.name
        or known.asynchronous
        or (computation.name, instruction.name) in shared.started,
        name=instruction.name,
        computation=computation.name,
        executions=known.count,
        conditional=known.conditional,
        mesh_axes=axes,
        group_size=joined.group_size,
        groups=None if joined.groups is None else len(joined.groups),
        payload_bytes=payload,
        wire_bytes_per_device=_countable(operation.wire_bytes(payload, group)),
        op_name=metadata.get("op_name") or None,
        source=module.source(metadata),
        spmd_generated=True if generated else None,
        source_target_pairs=joined.moves,
        device_groups=joined.groups if mesh and axes is None and joined.moves is None else None,
    )


def _mesh_axes(joined: Partners, mesh: Mesh) -> tuple[str, ...] | None:
    if joined.moves is None:
        return None if joined.groups is None else axes_of_groups(joined.groups, mesh)
    # A shift along a mesh axis need not come round to where it began, and then makes no whole groups.
    return axes_of_moves(joined.moves, mesh)


def _sliced_bytes(instruction: Instruction, operand: Shape | None) -> int | None:
    """Bytes of the slices, of an array or of the arrays of a tuple; each has some, of the same type."""
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
    """The size, if it is one that a Snapshot can hold; garbage can multiply to anything."""
    return size if size is not None and size <= LARGEST else None
