"""Collectives between TPU slices, over the data center network (DCN).

The text of a program on several slices has no collective instruction for them. The runtime Megascale runs
them between a send and a receive. Their frontend attributes have the operation and the devices:

  _xla_megascale_transfer_type: ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, ONE_TO_ONE.
  _xla_megascale_target: `{1,2}x{0:3}`, the devices 0 to 3 of slices 1 and 2, a group for each number;
    `{{100000,200000},…}`, groups of device ids; `{{100000->200000},…}`, pairs of device ids.
  _xla_host_transfer_rendezvous: the name that the send and the receive share.

Source: texts that libtpu 0.0.42 wrote.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from inspector.hlo.analysis import Analysis
from inspector.hlo.dataflow import Backward, CallFrame, Value
from inspector.hlo.module import Computation, Instruction
from inspector.hlo.opcodes import SAME_DATA
from inspector.hlo.replica_groups import MAX_POSITIONS, Groups
from inspector.records.snapshot import Mesh
from inspector.sharding.meshes import slices_of

_TYPE = re.compile(r'\b_xla_megascale_transfer_type\s*+=\s*+"?(\w++)')
_TARGET = re.compile(r'\b_xla_megascale_target\s*+=\s*+"?([\d,:x{}>\-]++)')
_RENDEZVOUS = re.compile(r'\b_xla_host_transfer_rendezvous\s*+=\s*+"?([^\s",{}]++)')
_PRODUCT = re.compile(r"\{([\d,:]++)\}x\{([\d,:]++)\}")
_GROUP = re.compile(r"\{(\d{1,18}+(?:,\d{1,18}+)*+)\}")
_PAIR = re.compile(r"\{(\d{1,18}+)->(\d{1,18}+)\}")
_RANGE = re.compile(r"(\d{1,9})(?::(\d{1,9}))?+\Z")
_MOST_STEPS = 100  # from the data to the operation that makes it

# A device by its id, or as (slice from 1, number in its slice).
Member = int | tuple[int, int]
Key = tuple[str, str]


@dataclass(frozen=True)
class SliceTransfer:
    """One collective between slices.

    op: the operation as HLO names it.
    groups: the groups, or (source, target) pairs, of devices; () if the text does not name them.
    sent_bytes, received_bytes: of one execution on one device; None if unknown.
    metadata: of the operation that makes or uses the data.
    """

    op: str
    computation: Computation
    send: Instruction
    groups: tuple[tuple[Member, ...], ...]
    sent_bytes: int | None
    received_bytes: int | None
    metadata: Mapping[str, str]

    def positions(self, mesh: Mesh | None) -> Groups | None:
        """Return the groups as positions on the mesh; None if a device is not on it."""
        if mesh is None or not self.groups:
            return None
        places: dict[Member, int] = {device: at for at, device in enumerate(mesh.devices)}
        slices = slices_of(mesh)
        if slices is not None:
            by_id = np.argsort(np.array(mesh.devices), kind="stable")
            for number in range(int(slices.max()) + 1):
                own = by_id[slices[by_id] == number].tolist()
                places |= {(number + 1, device): at for device, at in enumerate(own)}
        groups = tuple(tuple(places.get(member, -1) for member in group) for group in self.groups)
        return groups if min(map(min, groups)) >= 0 else None


def transfers(analysis: Analysis) -> dict[Key, SliceTransfer]:
    """Return the collectives between slices by computation and name of their send."""
    by_send = {}
    for computation in analysis.module.computations:
        ends: dict[str, Instruction] = {}
        for instruction in computation.instructions:
            if instruction.opcode == "recv" and (name := rendezvous(instruction)) is not None:
                ends[name] = instruction
        for instruction in computation.instructions:
            if instruction.opcode == "send" and (kind := _TYPE.search(instruction.attributes_text)):
                receive = ends.get(rendezvous(instruction) or "")
                by_send[computation.name, instruction.name] = _transfer(
                    analysis.backward, computation, instruction, receive, kind[1]
                )
    return by_send


def rendezvous(instruction: Instruction) -> str | None:
    """Return the name that the send and the receive of one transfer share; None for other instructions."""
    match = _RENDEZVOUS.search(instruction.attributes_text)
    return match[1] if match else None


def _transfer(
    backward: Backward, computation: Computation, send: Instruction, receive: Instruction | None, kind: str
) -> SliceTransfer:
    op = kind.lower().replace("_", "-")
    op = "collective-permute" if op == "one-to-one" else op
    written = _TARGET.search(send.attributes_text)
    return SliceTransfer(
        op,
        computation,
        send=send,
        groups=_groups(written[1] if written else ""),
        sent_bytes=_data_bytes(send),
        received_bytes=None if receive is None else _data_bytes(receive),
        metadata=_metadata(backward, computation, send, receive),
    )


def _data_bytes(instruction: Instruction) -> int | None:
    """Return the bytes of the first part of (data, context, token)."""
    shape = instruction.shape
    return shape.parts[0].bytes if shape is not None and shape.parts else None


def _groups(target: str) -> tuple[tuple[Member, ...], ...]:
    if products := _PRODUCT.findall(target):
        groups: list[tuple[Member, ...]] = []
        for slices, devices in products:
            across, inside = _numbers(slices), _numbers(devices)
            if not 0 < len(across) * len(inside) <= MAX_POSITIONS:
                return ()
            groups += [tuple((number, device) for number in across) for device in inside]
        return tuple(groups)
    if pairs := _PAIR.findall(target):
        return tuple((int(source), int(to)) for source, to in pairs)
    return tuple(tuple(map(int, group.split(","))) for group in _GROUP.findall(target))


def _numbers(text: str) -> range | list[int]:
    """Return the numbers in `1,2` or `0:3`; the last number of a range is included."""
    numbers: list[int] = []
    for item in text.split(","):
        bounds = _RANGE.match(item)
        if bounds is None:
            return []
        first = int(bounds[1])
        last = int(bounds[2] or first)
        if len(numbers) + last - first >= MAX_POSITIONS:
            return []
        numbers += range(first, last + 1)
    return numbers


def _metadata(
    backward: Backward, computation: Computation, send: Instruction, receive: Instruction | None
) -> Mapping[str, str]:
    """Return the metadata of the operation that makes the data, or else of the first one that uses it."""
    for sent in backward.operands(Value(CallFrame(computation, open=False), send), slice(1)):
        for value in backward.chain(sent, SAME_DATA, _MOST_STEPS):
            if value.instruction.does != "parameter" and "op_name" in value.instruction.metadata:
                return value.instruction.metadata
    used = {receive.name} if receive is not None else set()
    for instruction in computation.instructions if used else ():
        if used.isdisjoint(operand.name for operand in instruction.operands):
            continue
        if "op_name" in instruction.metadata:
            return instruction.metadata
        if instruction.does in SAME_DATA or instruction.does in ("element", "done"):
            used.add(instruction.name)
    return {}
