"""The meshes of a Snapshot with several, the devices of all of them, and slices of TPUs."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from inspector.records.snapshot import Array, Mesh, MeshAxis, Program, Snapshot
from inspector.sharding.once import once_per_snapshot
from inspector.sharding.sharding_text import mesh_text
from inspector.text.formatting import counted, devices_text

DCN = "dcn"  # the network of a Collective between slices


def slices_of(mesh: Mesh) -> np.ndarray | None:
    """Return (devices,) the slice of each device in mesh order, numbered from 0.

    Return None for one slice, or if the indices are missing or invalid: each slice must have as many devices.
    """
    if mesh.slice_index is None or len(mesh.slice_index) != mesh.size:
        return None
    names, numbers, counts = np.unique(mesh.slice_index, return_inverse=True, return_counts=True)
    return numbers if len(names) > 1 and len(set(counts.tolist())) == 1 else None


def crossing_axes(mesh: Mesh) -> tuple[str, ...]:
    """Return the mesh axes along which the slice changes, in mesh order; () for one slice."""
    slices = slices_of(mesh)
    if slices is None:
        return ()
    stride, crossing = mesh.size, []
    for axis in mesh.axes:
        # Not reshaped to the mesh: NumPy allows 64 dimensions.
        stride //= axis.size
        along = slices.reshape(-1, axis.size, stride)
        if (along != along[:, :1]).any():
            crossing.append(axis.name)
    return tuple(crossing)


MeshKey = tuple[tuple[tuple[str, int], ...], tuple[int, ...]]

_MOST_DEVICES_LISTED = 4


def mesh_key(mesh: Mesh) -> MeshKey:
    """Return a key that is equal for meshes on which a spec means the same. Axis types do not matter."""
    return tuple((axis.name, axis.size) for axis in mesh.axes), mesh.devices


class MeshList:
    """The meshes of several Snapshots, equal ones once, to combine these Snapshots into one.

    >>> meshes = MeshList([Mesh((MeshAxis("x", 2),), (0, 1))])
    >>> meshes.index_of(Mesh((MeshAxis("x", 2),), (2, 3)))
    0
    >>> [mesh.devices for mesh in meshes.other_meshes]
    [(2, 3)]
    """

    def __init__(self, meshes: Iterable[Mesh] = ()) -> None:
        """Args: the first meshes, that of `Snapshot.mesh` first."""
        self._meshes: dict[MeshKey, Mesh] = {}
        for mesh in meshes:
            self._meshes.setdefault(mesh_key(mesh), mesh)

    def index_of(self, mesh: Mesh | None) -> int | None:
        """Return the value of `Array.mesh` for a mesh, which is added if it is new."""
        if mesh is None:
            return None
        key = mesh_key(mesh)
        self._meshes.setdefault(key, mesh)
        place = list(self._meshes).index(key)
        return place - 1 if place else None

    def arrays(self, snapshot: Snapshot) -> tuple[Array, ...]:
        """Return the arrays of a Snapshot with the indexes of this list."""
        return tuple(replace(array, mesh=self.index_of(snapshot.mesh_of(array))) for array in snapshot.arrays)

    def programs(self, snapshot: Snapshot, programs: Iterable[Program] | None = None) -> tuple[Program, ...]:
        """Return programs of a Snapshot with the indexes of this list; without `programs`, its own."""
        return tuple(
            program
            if program.device is not None
            else replace(program, mesh=self.index_of(snapshot.mesh_of(program)))
            for program in (snapshot.programs if programs is None else programs)
        )

    @property
    def mesh(self) -> Mesh | None:
        """The first mesh, None without meshes."""
        return next(iter(self._meshes.values()), None)

    @property
    def other_meshes(self) -> tuple[Mesh, ...]:
        """The meshes after the first."""
        return tuple(self._meshes.values())[1:]


def mesh_of_all_devices(snapshot: Snapshot) -> Mesh | None:
    """Return a mesh with each device of all meshes once. With one mesh, it is this mesh.

    With several, it has one axis, `device`, and also has devices that are on no mesh but hold shards.
    """
    if snapshot.mesh is None or not snapshot.other_meshes:
        return snapshot.mesh
    processes: dict[int, int | None] = {}
    for mesh in snapshot.meshes:
        owners: Sequence[int | None] = mesh.processes or (None,) * mesh.size
        processes |= dict(zip(mesh.devices, owners, strict=True))
    for array in snapshot.arrays:
        for shard in array.shards or ():
            processes.setdefault(shard.device, shard.process)
    devices = tuple(sorted(processes))
    known = [owner for device in devices if (owner := processes[device]) is not None]
    return Mesh(
        (MeshAxis("device", len(devices)),),
        devices,
        tuple(known) if len(known) == len(devices) else None,
        snapshot.mesh.device_kind,
    )


def is_emulated(mesh: Mesh | None) -> bool:
    """Return whether the devices of a mesh are CPUs, or unknown. CPUs have no separate host memory."""
    return mesh is None or mesh.device_kind in (None, "cpu")


def on_cpu(mesh: Mesh | None) -> bool:
    """Return whether the devices of a mesh are known to be CPU devices, which share one machine."""
    return mesh is not None and mesh.device_kind == "cpu"


def devices_of(snapshot: Snapshot) -> str:
    """Return the number of devices in words: `8 devices`, `8 emulated devices`; "" if it is unknown.

    If meshes and programs leave out devices of the processes, it is `4 of 8 devices`. A plan is for emulated
    devices only if it is to run on them.
    """
    devices = number_of_devices(snapshot)
    if devices is None:
        return ""
    planned_for = (snapshot.layout or {}).get("target") if snapshot.source.kind == "plan" else "cpu"
    emulated = on_cpu(snapshot.mesh) and planned_for == "cpu"
    every = snapshot.source.devices or 0
    used = max([devices, *(program.devices or every for program in snapshot.programs)])
    part = f"{devices:,} of " if used < every else ""
    return part + counted(every if part else devices, "emulated device" if emulated else "device")


@once_per_snapshot
def number_of_devices(snapshot: Snapshot) -> int | None:
    """Return the number of devices of all meshes together; None without a mesh."""
    if snapshot.mesh is None:
        return None
    return len({device for mesh in snapshot.meshes for device in mesh.devices})


def mesh_name(record: Array | Program) -> str:
    """Return `mesh 1`, `mesh 2`, …: the name of the mesh of a record in a Snapshot with several."""
    return f"mesh {1 if record.mesh is None else record.mesh + 2}"


def meshes_text(snapshot: Snapshot, *, max_axes_of_size_1: int = 3) -> str:
    """Return the mesh axes, with the devices of each mesh if there are several.

    >>> first, second = (Mesh((MeshAxis("x", 2),), ids) for ids in ((0, 1), (2, 3)))
    >>> from inspector.records.snapshot import Source
    >>> source = Source("capture", None, "2026-01-01")
    >>> meshes_text(Snapshot(source, None, first, (), other_meshes=(second,)))
    'mesh 1: x 2, devices 0, 1; mesh 2: x 2, devices 2, 3'
    """
    if not snapshot.other_meshes:
        return mesh_text(snapshot.mesh, max_axes_of_size_1=max_axes_of_size_1)
    return "; ".join(
        mesh_title(number, mesh, max_axes_of_size_1=max_axes_of_size_1)
        for number, mesh in enumerate(snapshot.meshes, start=1)
    )


def mesh_title(number: int, mesh: Mesh, *, max_axes_of_size_1: int = 3) -> str:
    """Return the name, the axes and the devices of a mesh; of one without axes, the only device.

    >>> mesh_title(2, Mesh((MeshAxis("x", 2),), (4, 5))), mesh_title(3, Mesh((), (0,)))
    ('mesh 2: x 2, devices 4, 5', 'device 0')
    """
    text = one_mesh_text(mesh, max_axes_of_size_1=max_axes_of_size_1)
    return f"mesh {number}: {text}" if mesh.axes else text


def one_mesh_text(mesh: Mesh, *, max_axes_of_size_1: int = 3) -> str:
    """Return the axes and the devices of a mesh: `fsdp 1 × tp 4, devices 4, 5, 6, 7`, or `device 0`."""
    if not mesh.axes:
        return f"device {mesh.devices[0]}"
    axes = mesh_text(mesh, max_axes_of_size_1=max_axes_of_size_1)
    return f"{axes}, devices {devices_text(mesh.devices, most=_MOST_DEVICES_LISTED)}"


def primes_of(size: int) -> list[int]:
    """Return the prime factors of a number, the smallest first."""
    primes, factor = [], 2
    while factor * factor <= size:
        while size % factor == 0:
            primes.append(factor)
            size //= factor
        factor += 1
    return [*primes, size] if size > 1 else primes
