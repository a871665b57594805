"""Collectives of a program: executions, devices, mesh axes and bytes of each."""

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from inspector.hlo import collective_requests, ragged_rows, replica_groups, text
from inspector.hlo.analysis import Analysis
from inspector.hlo.asynchronous import begun, waits_at_once
from inspector.hlo.collective_requests import metadata_of, operation_of, request_of
from inspector.hlo.module import Computation, Instruction, Module, operand_names, operand_shapes
from inspector.hlo.replica_groups import (
    Groups,
    Mode,
    Room,
    axes_of_groups,
    axes_of_pairs,
    axes_of_parts,
    in_each_slice,
    parts_of_axes,
)
from inspector.hlo.shapes import Shape, total_bytes
from inspector.hlo.slice_transfers import SliceTransfer, transfers
from inspector.records.collectives import BY_OPCODE, OPERATIONS
from inspector.records.snapshot import Collective, Mesh
from inspector.records.typed_json import LARGEST
from inspector.sharding.meshes import DCN, slices_of
from inspector.text.errors import InvalidInput

_LONGEST_GROUPS = 200  # characters of groups that are not listed
_MOST_KINDS = 50  # of collectives in a computation whose order is read
_SIZE = re.compile(r"\d{1,18}")
_GENERATED = re.compile(r'\bis_spmd_generated\s*+=\s*+"?true\b')


def collectives(
    module: Module, mesh: Mesh | None = None, analysis: Analysis | None = None, room: Room | None = None
) -> tuple[Collective, ...]:
    """Return each collective in the order of the text, an asynchronous one at its start.

    A collective between TPU slices is at its send.

    Args:
      mesh: the mesh for which the program was compiled; without it `mesh_axes` is None.
      room: bounds the listed devices of all programs of a file. By default those of this program.

    Raises:
      InvalidInput: `replica_groups` or `source_target_pairs` of a collective are invalid.
    """
    analysis = analysis or Analysis(module)
    between = transfers(analysis)
    instructions = [
        (computation, instruction)
        for computation, instruction in module.instructions
        if instruction.opcode in BY_OPCODE or (computation.name, instruction.name) in between
    ]
    if not instructions:
        return ()
    room = room or Room()
    found = {
        (computation.name, instruction.name): _collective(analysis, computation, instruction, mesh, room)
        if instruction.opcode in BY_OPCODE
        else _between_slices(analysis, between[computation.name, instruction.name], mesh, room)
        for computation, instruction in instructions
        if (computation.name, instruction.name) not in analysis.chains.carried_on
    }
    by_name = {computation.name: computation for computation, _ in instructions}
    depths = _depths(by_name.values(), found)
    return tuple(replace(collective, depth=depths.get(key)) for key, collective in found.items())


def _depths(
    computations: Iterable[Computation], found: Mapping[tuple[str, str], Collective]
) -> dict[tuple[str, str], int]:
    """Return `Collective.depth` of collectives, across all mesh axes in a computation with too many kinds."""
    depths: dict[tuple[str, str], int] = {}
    for computation in computations:
        kinds: dict[str, tuple[object, ...]] = {
            instruction.name: (collective.op, collective.mesh_axes)
            for instruction in computation.instructions
            if instruction.opcode in BY_OPCODE
            and (collective := found.get((computation.name, instruction.name)))
        }
        if len({*kinds.values()}) > _MOST_KINDS:
            kinds = {name: kind[:1] for name, kind in kinds.items()}
        # Of each value, by kind: the longest chain of collectives that it needs.
        chains: dict[str | None, Mapping[tuple[object, ...], int]] = {}
        for instruction in computation.instructions:
            needed: Mapping[tuple[object, ...], int] = {}
            for chain in filter(None, map(chains.get, operand_names(instruction))):
                if needed and needed is not chain:
                    chain = {**needed, **{kind: max(n, needed.get(kind, 0)) for kind, n in chain.items()}}
                needed = chain
            if (kind := kinds.get(instruction.name)) is not None:
                depths[computation.name, instruction.name] = needed.get(kind, 0)
                needed = {**needed, kind: needed.get(kind, 0) + 1}
            if needed:
                chains[instruction.name] = needed
    return depths


def positions_of(module: Module, instruction: Instruction) -> Groups | None:
    """Return the groups of devices that communicate, as positions; None if their number is unknown.

    Raises:
      InvalidInput: `replica_groups` or `source_target_pairs` are invalid.
    """
    return _expanded(module, instruction, None)[0]


def _partners(
    module: Module, instruction: Instruction, mesh: Mesh | None, room: Room
) -> tuple[Groups | None, Groups | None]:
    """Return the groups of devices that communicate, and the (source, target) pairs of a permute.

    Both are positions in the device assignment. Groups are None if their number of devices is unknown, or if
    there is no room for them.
    """
    written = _written(instruction)
    if not room.may_expand(written):
        return None, None
    groups, pairs = _expanded(module, instruction, mesh)
    room.expanded(written, sum(map(len, groups or ())))
    return groups, pairs


def _written(instruction: Instruction) -> str:
    """Return the groups or pairs as the text writes them."""
    pairs = BY_OPCODE[instruction.opcode].route == "pairs"
    return instruction.attributes.get("source_target_pairs" if pairs else "replica_groups", "{}")


def _expanded(
    module: Module, instruction: Instruction, mesh: Mesh | None
) -> tuple[Groups | None, Groups | None]:
    operation = BY_OPCODE[instruction.opcode]
    attributes = instruction.attributes
    written = _written(instruction)
    devices = module.replicas, module.partitions
    try:
        flag = attributes.get("use_global_device_ids", "false") == "true"
        mode = replica_groups.mode("channel_id" in attributes, flag if operation.global_ids else None)
        if operation.route == "pairs":
            if not replica_groups.pairs(written):
                # No device sends. The partitioner writes this for a halo that no shard needs.
                return (), ()
            sent = _positions(replica_groups.pairs, written, mode, *devices) or ()
            pairs = _of_all_slices(module, sent, mesh)
            return replica_groups.connected(pairs), pairs
        positions = _positions(replica_groups.expand, written, mode, *devices)
    except InvalidInput as error:
        raise InvalidInput(f"{instruction.name}: {error}") from None
    if positions is None:
        return (None if mesh is None else (tuple(range(mesh.size)),)), None
    return _of_all_slices(module, positions, mesh), None


def _of_all_slices(module: Module, groups: Groups, mesh: Mesh | None) -> Groups:
    if mesh is None or module.partitions is None:
        return groups
    return in_each_slice(groups, (module.replicas or 1) * module.partitions, mesh)


@functools.lru_cache(maxsize=64)
def _positions(
    parse: Callable[[str], Groups],
    written: str,
    mode: Mode,
    counted_replicas: int | None,
    counted_partitions: int | None,
) -> Groups | None:
    """Parse ids and convert them to positions. None if all devices communicate and their number is unknown.

    Args:
      parse: parses the text of the groups or of the pairs.
      counted_replicas, counted_partitions: numbers in the header of the module; None if it lacks one.
    """
    groups = parse(written)
    counted = counted_replicas is not None or counted_partitions is not None
    replicas, partitions = counted_replicas or 1, counted_partitions or 1
    highest = max((max(group, default=-1) for group in groups), default=-1)
    ids = partitions if mode == "cross_partition" else replicas
    # Some texts lack the number of devices, or the channel that partitions need. An id beyond those of the
    # mode is a position.
    if groups and mode != "flattened_id" and (not counted or highest >= ids):
        return groups
    if not groups and mode != "flattened_id" and not counted:
        return None
    return replica_groups.participants(groups, mode, replicas, partitions)


def _payload_bytes(computation: Computation, instruction: Instruction, group: int | None) -> int | None:
    """Return the bytes of one execution on one device by the operation's payload rule; None if unknown."""
    operation = BY_OPCODE[instruction.opcode]
    result = begun(instruction).shape
    operands = operand_shapes(computation, instruction)
    if operation.payload == "result":
        return result.bytes if result else None
    if operation.payload == "first operand":
        operands = operands[:1]
    if operation.route == "chain" and instruction.attributes.get("has_dynamic_root") == "true":
        operands = operands[:-1]
    # With operands (input, output, offsets) only the stated slices of the input are sent.
    if operation.route == "pairs" and "slice_sizes" in instruction.attributes:
        return _sliced_bytes(instruction, operands[0] if operands else None)
    size = ragged_rows.used(total_bytes(operands) if operands else None, computation, instruction)
    if size is None and result is not None and result.bytes is not None:
        # A truncated text can lack the operand. The result has the size of the operand or of a shard.
        if not operation.result_is_shard:
            return result.bytes
        return result.bytes * group if group else None
    return size


def _collective(
    analysis: Analysis, computation: Computation, instruction: Instruction, mesh: Mesh | None, room: Room
) -> Collective:
    module, operation = analysis.module, BY_OPCODE[instruction.opcode]
    groups, pairs = _partners(module, instruction, mesh, room)
    sizes = {len(members) for members in groups or ()}
    group_size = (sizes.pop() or None) if len(sizes) == 1 else None  # None if groups differ in size
    count = None if groups is None else len(groups)
    if groups is None and (shape := replica_groups.written_shape(_written(instruction))):
        count, group_size = shape
    idle = pairs is not None and all(source == target for source, target in pairs)
    group = 1 if idle else group_size
    payload = _countable(_payload_bytes(computation, instruction, group))
    axes, whole = _axes(groups, pairs, mesh)
    listed = groups if mesh and not whole and pairs is None else None
    kept = (groups is not None or mesh is None) and room.keeps(listed) and room.keeps(pairs)
    parts = None
    if mesh is not None and axes is None and pairs is None and groups is not None:
        parts = parts_of_axes(groups, mesh)
    runs = analysis.runs[computation.name]
    metadata = metadata_of(analysis, computation, instruction)
    generated = _GENERATED.search(instruction.attributes.get("frontend_attributes", ""))
    return Collective(
        op=operation.name,
        asynchronous=(instruction.opcode != operation.name and not waits_at_once(instruction))
        or runs.asynchronous
        or (computation.name, instruction.name) in analysis.chains.started,
        name=instruction.name,
        computation=computation.name,
        executions=runs.count,
        executions_per_iteration=runs.per_iteration if runs.count is None else None,
        conditional=runs.conditional,
        within=runs.within or (),
        mesh_axes=axes,
        group_size=group_size,
        groups=count,
        payload_bytes=payload,
        wire_bytes_per_device=_countable(operation.wire_bytes(payload, group)),
        op_name=metadata.get("op_name") or None,
        **request_of(module, metadata)._asdict(),
        spmd_generated=True if generated else None,
        source_target_pairs=_pairs(pairs if kept else None),
        device_groups=listed if kept else None,
        written_groups=None if kept else _written(instruction)[:_LONGEST_GROUPS],
        network=_network(listed, mesh),
        axis_parts=parts,
        parts=collective_requests.parts(analysis, computation, instruction),
        operation=operation_of(analysis, computation, instruction, metadata),
    )


def _network(groups: Groups | None, mesh: Mesh | None) -> str | None:
    """Return `dcn` if groups that whole mesh axes do not form cross slices, such as the part between slices.

    The size of such groups does not say it, if an axis has as many devices in a slice as slices.
    """
    slices = None if mesh is None else slices_of(mesh)
    if slices is None or not groups:
        return None
    return DCN if any(len({*slices[list(members)].tolist()}) > 1 for members in groups) else None


def _pairs(pairs: Groups | None) -> tuple[tuple[int, int], ...] | None:
    return None if pairs is None else tuple((pair[0], pair[1]) for pair in pairs)


def _between_slices(analysis: Analysis, transfer: SliceTransfer, mesh: Mesh | None, room: Room) -> Collective:
    operation = OPERATIONS.get(transfer.op)
    groups, pairs = transfer.positions(mesh), None
    members: Sequence[Sequence[object]] = transfer.groups
    if operation is not None and operation.route == "pairs":
        pairs = groups
        groups = members = () if pairs is None else replica_groups.connected(pairs)
    sizes = {len(member) for member in members}
    group_size = (sizes.pop() or None) if len(sizes) == 1 else None
    received = operation is not None and operation.payload == "result"
    payload = _countable(transfer.received_bytes if received else transfer.sent_bytes)
    axes, whole = _axes(groups, pairs, mesh)
    listed = groups if not whole and pairs is None else None
    kept = room.keeps(listed) and room.keeps(pairs)
    runs = analysis.runs[transfer.computation.name]
    wire = None if operation is None else operation.wire_bytes(payload, group_size)
    metadata = transfer.metadata
    return Collective(
        op=transfer.op,
        asynchronous=True,
        name=transfer.send.name,
        computation=transfer.computation.name,
        executions=runs.count,
        executions_per_iteration=runs.per_iteration if runs.count is None else None,
        conditional=runs.conditional,
        within=runs.within or (),
        mesh_axes=axes,
        group_size=group_size,
        groups=len(members) or None,
        payload_bytes=payload,
        wire_bytes_per_device=_countable(wire),
        op_name=metadata.get("op_name") or None,
        **request_of(analysis.module, metadata)._asdict(),
        source_target_pairs=_pairs(pairs if kept else None),
        device_groups=listed if kept else None,
        network=DCN,
    )


def _axes(
    groups: Groups | None, pairs: Groups | None, mesh: Mesh | None
) -> tuple[tuple[str, ...] | None, bool]:
    """Return the mesh axes of groups or pairs, and whether the groups are those of whole axes."""
    # A shift without wrap-around does not form whole groups, so pairs are not compared as groups.
    if mesh is None:
        return None, False
    if pairs is not None:
        return axes_of_pairs(pairs, mesh), False
    if groups is None:
        return None, False
    axes = axes_of_groups(groups, mesh)
    return (axes_of_parts(groups, mesh), False) if axes is None else (axes, True)


def _sliced_bytes(instruction: Instruction, operand: Shape | None) -> int | None:
    """Return the bytes of the slices of an array or of each array of a tuple, all of the same type."""
    if operand is None:
        return None
    widths = {part.element_bits for part in operand.parts or (operand,)}
    bits = widths.pop() if len(widths) == 1 else None
    if bits is None:
        return None
    slices = (_SIZE.findall(sizes) for sizes in text.items(instruction.attributes["slice_sizes"]))
    return sum(-(-math.prod(map(int, sizes)) * bits // 8) for sizes in slices)


def _countable(size: int | None) -> int | None:
    """Return the size, or None if it exceeds the limit of a Snapshot, as in invalid text."""
    return size if size is not None and size <= LARGEST else None
