"""Read and write Snapshot files, and check that a Snapshot does not contradict itself."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from inspector.files import output, strict_json
from inspector.records import typed_json
from inspector.records.collectives import OPERATIONS
from inspector.records.snapshot.arrays import Array, Mesh, Spec
from inspector.records.snapshot.contents import FORMAT, VERSION, Finding, Reshard, Snapshot
from inspector.records.snapshot.memory_use import MemoryUse
from inspector.records.snapshot.programs import Collective, Program
from inspector.records.typed_json import LARGEST
from inspector.text.errors import InvalidInput, shown
from inspector.text.formatting import counted

# Check that a Snapshot does not contradict itself, so that nothing that shows it needs to.
#
# The types of the records have checked each field alone: integers have 63 bits, amounts are finite and not
# negative. Here are the rules for several fields. Sums are checked because tables and NumPy have 64 bits.


_TOO_LARGE = "but must be at most 2^63 - 1"
# Of one program, which can run on another mesh than that of the Snapshot. The largest TPU slice has 8,960.
_MOST_DEVICES = 2**20


def check(snapshot: Snapshot, what: str) -> None:
    """Check a Snapshot. `what` names it in errors.

    Raises:
      InvalidInput: a field contradicts another one.
    """
    mesh = snapshot.mesh
    if mesh is not None:
        _check_mesh(mesh, f"{what}: mesh")
    _check_other_meshes(snapshot, what)
    _check_arrays(snapshot, what)
    for key, programs in (("programs", snapshot.programs), ("propagated", snapshot.partitioned or ())):
        for i, program in enumerate(programs):
            _check_program(program, snapshot.mesh_of(program), f"{what}: {key}[{i}]")
    for i, reshard in enumerate(snapshot.reshards):
        _check_reshard(reshard, f"{what}: reshards[{i}]")
    _check_sum((live_bytes.bytes for live_bytes in snapshot.live or ()), f"{what}: live", "bytes")


def _check_mesh(mesh: Mesh, where: str) -> None:
    names: set[str] = set()
    for i, axis in enumerate(mesh.axes):
        if axis.name in names:
            raise InvalidInput(
                f"{where}.axes[{i}].name is {shown(axis.name)}, but each axis must have a unique name"
            )
        names.add(axis.name)
    if len(mesh.devices) != mesh.size:
        # Do not print the product of the axes: it can have more digits than Python converts.
        raise InvalidInput(
            f"{where}.devices has {len(mesh.devices)} entries, but the axes have sizes "
            f"{shown('x'.join(map(str, mesh.shape)))}"
        )
    if len(set(mesh.devices)) != mesh.size:
        raise InvalidInput(f"{where}.devices has a device twice, but each must occur once")
    for label in ("processes", "slice_index", "coordinates", "cores"):
        entries = getattr(mesh, label)
        if entries is not None:
            _check_count(entries, mesh.size, "device", f"{where}.{label}")
    rank = next((len(part) for part in (mesh.topology, mesh.wraps) if part is not None), None)
    if rank is None and mesh.coordinates:
        rank = len(mesh.coordinates[0])
    if rank is not None:
        of_torus = [("wraps", mesh.wraps), ("topology", mesh.topology)]
        of_torus += [(f"coordinates[{i}]", chip) for i, chip in enumerate(mesh.coordinates or ())]
        for label, entries in of_torus:
            if entries is not None:
                _check_count(entries, rank, "dimension", f"{where}.{label}")


def _check_count(entries: Sequence[object], count: int, unit: str, where: str) -> None:
    if len(entries) != count:
        raise InvalidInput(
            f"{where} has {counted(len(entries), 'entry', 'entries')}, but must have one for each of "
            f"{counted(count, unit)}"
        )


def _check_other_meshes(snapshot: Snapshot, what: str) -> None:
    if snapshot.other_meshes and snapshot.mesh is None:
        raise InvalidInput(f"{what} has other_meshes, but must have a mesh too")
    for i, mesh in enumerate(snapshot.other_meshes):
        _check_mesh(mesh, f"{what}: other_meshes[{i}]")
    count = len(snapshot.other_meshes)
    records: dict[str, Iterable[Array | Program | Finding]] = {
        "arrays": snapshot.arrays,
        "findings": snapshot.findings,
        "programs": snapshot.programs,
        "propagated": snapshot.partitioned or (),
    }
    for key, those in records.items():
        for i, record in enumerate(those):
            if record.mesh is not None and record.mesh >= count:
                allowed = f"an index from 0 to {count - 1}" if count else "null without other_meshes"
                raise InvalidInput(f"{what}: {key}[{i}].mesh is {record.mesh}, but must be {allowed}")


# --- Arrays ---------------------------------------------------------------------------------------


def _check_arrays(snapshot: Snapshot, what: str) -> None:
    paths: set[str] = set()
    for array in snapshot.arrays:
        if array.path in paths:
            raise InvalidInput(f"{what}: the array {shown(array.path)} occurs twice")
        paths.add(array.path)
        where = f"{what}: {shown(array.path, 200)}"
        mesh = snapshot.mesh_of(array)
        names = () if mesh is None else mesh.sizes.keys()
        rank = None if array.shape is None else len(array.shape)
        lists = {
            "spec": array.spec,
            "logical_axes": array.logical_axes,
            "shard_shape": array.shard_shape,
            "shard_map.other_axes": (array.shard_map and array.shard_map.other_axes) or None,
        }
        for label, entries in lists.items():
            if entries is not None and rank is not None:
                _check_count(entries, rank, "dimension", f"{where}: {label}")
        if array.shape is not None and math.prod(array.shape) > LARGEST:
            raise InvalidInput(
                f"{where}: shape is {shown(str(array.shape))}, but its product must be at most 2^63 - 1"
            )
        used = [axis for entry in array.spec or () for axis in entry or ()]
        for axis in used:
            if axis not in names:
                raise InvalidInput(f"{where} is sharded over {shown(axis)}, but the mesh has no such axis")
        if len(set(used)) != len(used):
            raise InvalidInput(f"{where} has a mesh axis twice in its spec, but may use it once")
        _check_shards(array, where)
    devices = max((mesh.size for mesh in snapshot.meshes), default=1)
    _check_sum((array.bytes for array in snapshot.arrays), f"{what}: arrays", "bytes")
    held = (array.bytes_per_device for array in snapshot.arrays)
    _check_sum(held, f"{what}: arrays", "bytes_per_device on all devices", devices)


def _check_shards(array: Array, where: str) -> None:
    if array.shape is None:
        if array.shards is not None:
            raise InvalidInput(f"{where} has shards, but no shape")
        return
    for i, shard in enumerate(array.shards or ()):
        if len(shard.index) != len(array.shape) or not all(
            start <= stop <= size for (start, stop), size in zip(shard.index, array.shape, strict=True)
        ):
            ranges = ", ".join(f"{start}:{stop}" for start, stop in shard.index)
            raise InvalidInput(
                f"{where}: shards[{i}].index is {shown(f'[{ranges}]')}, but must be a range "
                f"inside each dimension of {shown(str(array.shape))}"
            )


# --- Programs -------------------------------------------------------------------------------------


def _check_program(program: Program, mesh: Mesh | None, where: str) -> None:
    collectives = program.collectives or ()
    for i, collective in enumerate(collectives):
        _check_collective(collective, mesh, f"{where}.collectives[{i}]")
    for label in ("payload_bytes", "wire_bytes_per_device"):
        every = (
            (collective.executions or 0) * (getattr(collective, label) or 0) for collective in collectives
        )
        devices = mesh.size if mesh else 1
        _check_sum(every, f"{where}.collectives", f"executions × {label} on all devices", devices)
    _check_sum((collective.executions for collective in collectives), f"{where}.collectives", "executions")
    if program.memory is not None:
        memory = program.memory
        parts = (memory.arguments, memory.outputs, memory.temporaries, memory.code)
        _check_sum(parts, f"{where}.memory", "bytes")
    if program.memory_use is not None:
        _check_memory_use(program.memory_use, f"{where}.memory_use")
    if program.sharding_error is not None:
        for i, operand in enumerate(program.sharding_error.operands):
            place = f"{where}.sharding_error.operands[{i}].spec"
            _check_rank(operand.shape, operand.spec, place)
    for i, conflict in enumerate(program.conflicts or ()):
        if not conflict.sides:
            raise InvalidInput(f"{where}.conflicts[{i}].sides is empty, but must have at least one")
        for j, side in enumerate(conflict.sides):
            for label, spec in (("spec", side.spec), ("used", side.used)):
                _check_rank(side.shape, spec, f"{where}.conflicts[{i}].sides[{j}].{label}")
    if program.schedule is not None and program.collectives is not None:
        for computation in program.schedule.computations:
            for operation in computation.operations:
                if operation.collective is not None and operation.collective >= len(collectives):
                    raise InvalidInput(
                        f"{where}.schedule: {shown(operation.name)} has the collective "
                        f"{operation.collective}, but must have the position of one of {len(collectives)}"
                    )


def _check_rank(shape: tuple[int, ...], spec: Spec, where: str) -> None:
    _check_count(spec, len(shape), "dimension", where)


def _check_memory_use(use: MemoryUse, where: str) -> None:
    points = len(use.points)
    if list(use.points) != sorted(set(use.points)) or (points and use.points[-1] >= use.instructions):
        raise InvalidInput(
            f"{where}.points must have different positions below {use.instructions}, in ascending order"
        )
    if use.peak >= max(points, 1):
        raise InvalidInput(f"{where}.peak is {use.peak}, but must be the index of one of {points} points")
    for label, count in [
        ("phases", len(use.phases)),
        *((f"groups[{i}].bytes", len(group.bytes)) for i, group in enumerate(use.groups)),
    ]:
        if count != points:
            raise InvalidInput(f"{where}.{label} has {count} entries, but must have {points}, as points has")
    if len({group.group for group in use.groups}) != len(use.groups) or (points and not use.groups):
        raise InvalidInput(f"{where}.groups must have each group once, and at least one")
    _check_sum((max(group.bytes, default=0) for group in use.groups), f"{where}.groups", "bytes")
    _check_sum((value.bytes for value in use.values), f"{where}.values", "bytes")
    if any(value.padding > value.bytes for value in use.values):
        raise InvalidInput(f"{where}.values has a padding that is larger than the bytes")


def _check_collective(collective: Collective, mesh: Mesh | None, where: str) -> None:
    # A compiler can have a new operation, whose traffic is unknown.
    if collective.op not in OPERATIONS and collective.wire_bytes_per_device is not None:
        raise InvalidInput(
            f"{where}.op is {shown(collective.op)}, but must be one of {', '.join(OPERATIONS)} if "
            "wire_bytes_per_device is known"
        )
    for label in ("group_size", "groups"):
        if (getattr(collective, label) or 0) > _MOST_DEVICES:
            raise InvalidInput(
                f"{where}.{label} is {getattr(collective, label)}, but must be at most {_MOST_DEVICES:,}"
            )
    for label in ("device_groups", "source_target_pairs"):
        for i, group in enumerate(getattr(collective, label) or ()):
            if group and max(group) >= _MOST_DEVICES:
                raise InvalidInput(
                    f"{where}.{label}[{i}] has the position {max(group)}, but positions must be below "
                    f"{_MOST_DEVICES:,}"
                )
    if mesh is None:
        return
    for axis in collective.mesh_axes or ():
        if axis not in mesh.sizes:
            raise InvalidInput(
                f"{where}.mesh_axes has {shown(axis)}, but must only have axes of the mesh: "
                f"{shown(', '.join(mesh.axis_names), 200)}"
            )
    if len(set(collective.mesh_axes or ())) != len(collective.mesh_axes or ()):
        raise InvalidInput(f"{where}.mesh_axes has an axis twice, but must have each once")


def _check_ends(
    routes: Sequence[tuple[int, int, int]], sides: Mapping[str, Sequence[int]], where: str
) -> None:
    """Check that routes begin at a device of the first side, and end at one of the second."""
    known = [(label, set(devices)) for label, devices in sides.items()]
    for i, (*ends, _) in enumerate(routes):
        for device, (label, devices) in zip(ends, known, strict=True):
            if device not in devices:
                raise InvalidInput(
                    f"{where}.routes[{i}] has the device {device}, but must have one of {label}"
                )


def _check_reshard(reshard: Reshard, where: str) -> None:
    for label, mesh, devices in (
        ("source", reshard.source_mesh, reshard.source_devices),
        ("target", reshard.target_mesh, reshard.target_devices),
    ):
        if mesh is not None:
            _check_mesh(mesh, f"{where}.{label}_mesh")
            if mesh.devices != devices:
                raise InvalidInput(
                    f"{where}.{label}_devices has {len(devices)} devices, but must be those of "
                    f"{label}_mesh in its order"
                )
    sides = {"source_devices": reshard.source_devices, "target_devices": reshard.target_devices}
    _check_ends(reshard.routes or (), sides, where)
    for i, arrays in enumerate(reshard.arrays):
        for label, spec in (("source", arrays.source_spec), ("target", arrays.target_spec)):
            if spec is not None:
                _check_rank(arrays.shape, spec, f"{where}.arrays[{i}].{label}_spec")
    every = (route[2] for route in reshard.routes or ())
    _check_sum(every, f"{where}.routes", "executions × bytes", reshard.executions)
    held = (arrays.count * arrays.bytes for arrays in reshard.arrays)
    _check_sum(held, f"{where}.arrays", "executions × count × bytes", reshard.executions)


def _check_sum(amounts: Iterable[int | None], where: str, label: str, times: int = 1) -> None:
    total = sum(amount or 0 for amount in amounts) * times
    if total > LARGEST:
        raise InvalidInput(f"{where}: the sum of {label} is about {total:.2e}, {_TOO_LARGE}")


SCHEMA_PATH = Path(__file__).parent.with_name("snapshot.schema.json")


def from_json(value: Any, what: str = "the Snapshot") -> Snapshot:
    """Return the Snapshot in parsed JSON.

    Raises:
      InvalidInput: it is not a Snapshot, has a newer version, or contradicts itself.
    """
    snapshot = typed_json.decode_file(Snapshot, value, what, FORMAT, VERSION)
    check(snapshot, what)
    return snapshot


def read(path: str | os.PathLike[str]) -> Snapshot:
    """Read a Snapshot file.

    Raises:
      InvalidInput: the file cannot be read or is not a Snapshot.

    Example:
      >>> import jax
      >>> from inspector import capture
      >>> from inspector.records.snapshot import read
      >>> captured = capture({"kernel": jax.numpy.zeros((8, 4))}, "state.json")
      >>> read("state.json") == captured
      True
    """
    return from_json(strict_json.read(path), str(path))


def dumps(snapshot: Snapshot) -> str:
    """Return the Snapshot as JSON text, with one line per array and per program."""
    return typed_json.dumps(snapshot.to_json())


def write(snapshot: Snapshot, path: str | os.PathLike[str]) -> None:
    """Write a Snapshot file, whole or not at all.

    Raises:
      InvalidInput: the file cannot be written.

    Example:
      >>> import jax
      >>> from inspector import capture
      >>> from inspector.records.snapshot import read, write
      >>> captured = capture({"kernel": jax.numpy.zeros((8, 4))})
      >>> write(captured, "copy.json")
      >>> read("copy.json").array("kernel").bytes
      128
    """
    output.write_text(dumps(snapshot), path)
