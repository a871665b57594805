"""What was found: a frozen record of a mesh, every array on it, and every compiled program.

A Snapshot is plain data. Producers make it, and everything that anybody sees is a pure function of one
or more of them. Bytes are integers, times are seconds, and None always means "not known".
The form on disk is described by `snapshot.schema.json` beside this file.
"""

from __future__ import annotations

import difflib
import functools
import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from inspector.core import output, record, strict_json
from inspector.core.errors import InvalidInput, shown

FORMAT = "sharding-snapshot"
VERSION = 1
SCHEMA_PATH = Path(__file__).with_name("snapshot.schema.json")

Kind = Literal["plan", "cpu", "tpu", "gpu", "capture", "orbax", "sharding", "maxtext", "hlo"]
Group = Literal["params", "opt_state", "batch", "output", "activation", "gradient", "other"]
Level = Literal["error", "warning", "note"]

# One entry a dimension: None where it is not split, else the mesh axes that split it, major first.
Spec = tuple[tuple[str, ...] | None, ...]


@dataclass(frozen=True)
class MeshAxis:
    """One named axis of a mesh; `type` is JAX's AxisType in lower case (auto, explicit, manual)."""

    name: str
    size: int
    type: str = "auto"
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Mesh:
    """Devices in row-major mesh order: the last axis varies fastest, as in `Mesh.devices.flat`."""

    axes: tuple[MeshAxis, ...]
    devices: tuple[int, ...]
    processes: tuple[int, ...] | None = None
    device_kind: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(axis.size for axis in self.axes)

    @property
    def axis_names(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def ways(self, axes: tuple[str, ...] | None) -> int:
        """How many parts a dimension split over these mesh axes has (1 for None)."""
        return math.prod([self._size_of[name] for name in axes]) if axes else 1

    @functools.cached_property
    def _size_of(self) -> dict[str, int]:
        # Asked for at every dimension of every array, which may be many.
        return {axis.name: axis.size for axis in self.axes}


@dataclass(frozen=True)
class Shard:
    """What one device holds of an array: a half-open (start, stop) a dimension, and which copy."""

    device: int
    index: tuple[tuple[int, int], ...]
    replica: int
    process: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Box:
    """The Flax box around a value: its class, and the name or names of each dimension."""

    kind: str
    names: tuple[tuple[str, ...] | None, ...]
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ArrayFacts:
    """What a live `jax.Array` says of its devices, as seen from the process that asked it.

    `placement` is `single device`, `one process` or `several processes`.
    """

    committed: bool
    fully_addressable: bool
    fully_replicated: bool
    placement: str
    devices: int
    addressable_shards: int
    global_shards: int
    memory_kind: str | None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Array:
    """One array and how it lies on the mesh.

    `shards` is explicit only where `spec` cannot say it; `spec` as a whole is None where the array has
    no NamedSharding. `replicas` is the number of devices that hold each element. `box` and `facts` are
    known of arrays that were alive, `program` of values inside a compiled program. `shape` is None where
    a file tells how an array is sharded but not how large it is; `spec` may then have fewer entries than
    the array has dimensions.
    """

    path: str
    group: Group
    shape: tuple[int, ...] | None
    dtype: str
    logical_axes: tuple[str | None, ...] | None = None
    spec: Spec | None = None
    shard_shape: tuple[int, ...] | None = None
    bytes: int | None = None
    bytes_per_device: int | None = None
    replicas: int | None = None
    shards: tuple[Shard, ...] | None = None
    box: Box | None = None
    facts: ArrayFacts | None = None
    program: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Memory:
    """Bytes on one device while a program runs, as the compiler's own analysis gives them."""

    arguments: int | None = None
    outputs: int | None = None
    aliased: int | None = None
    temporaries: int | None = None
    code: int | None = None
    peak: int | None = None
    capacity: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Collective:
    """One collective instruction of a compiled program; the definitions are in the README.

    `source_target_pairs` are those of a collective-permute; `device_groups` is there where the groups are
    known but no mesh axes make them. Both hold positions in the mesh's devices. `arrays` are the paths of
    the arrays of this Snapshot that it moves, as far as the program's text says; None where nobody looked.
    """

    op: str
    asynchronous: bool
    name: str
    computation: str
    executions: int | None
    conditional: bool
    mesh_axes: tuple[str, ...] | None
    group_size: int | None
    groups: int | None
    payload_bytes: int | None
    wire_bytes_per_device: int | None
    op_name: str | None = None
    source: str | None = None
    spmd_generated: bool | None = None
    source_target_pairs: tuple[tuple[int, int], ...] | None = None
    device_groups: tuple[tuple[int, ...], ...] | None = None
    arrays: tuple[str, ...] | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MatmulFlops:
    """Floating-point operations of matrix products whose operands have this type, two a multiply-add."""

    dtype: str
    flops: float
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """What one run of a program computes and touches, every loop counted as often as it runs.

    `flops` are all floating-point operations, `matmul` those of matrix products and convolutions alone.
    `bytes_accessed` is what its instructions read and write, each fusion as one. None where a loop's count
    or a shape is not known. `not_counted` are the targets of custom calls whose work no text tells.
    """

    flops: float | None
    matmul: tuple[MatmulFlops, ...] | None
    bytes_accessed: float | None
    not_counted: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OperationTime:
    """Where emulated devices spent their time: one kind of operation, summed over devices and steps."""

    kind: str
    events: int
    seconds: float
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Trace:
    """What JAX's profiler saw in `steps` runs that took `seconds` of wall-clock time together."""

    steps: int
    seconds: float
    operations: tuple[OperationTime, ...]
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Timeit:
    """Seconds a call as `%%timeit` has them: mean and deviation of `runs` loops of `loops` calls."""

    mean: float
    deviation: float
    runs: int
    loops: int
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Seconds:
    """Wall-clock seconds of one program: lowering, compiling, its first run, every measured run."""

    lower: float | None = None
    compile: float | None = None
    first: float | None = None
    steps: tuple[float, ...] = ()
    timeit: Timeit | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ProgramArray:
    """One input or output of a program: the sharding asked for, and the one that was compiled.

    `asked` is None where the compiler was to choose, `used` is false for an input that the program drops;
    `same` is None in either case.
    """

    role: Literal["input", "output"]
    path: str
    asked: Spec | None
    got: Spec | None
    same: bool | None
    used: bool = True
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Program:
    """One compiled program. `collectives` is None where they have not been counted.

    `work` is that of one device, and `flops_per_device` repeats its FLOPs; `ideal` is that of the program
    before it was partitioned: what all devices together would do if none repeated another's work.
    `losses` are those of the first and every measured train step, in order; None where it was infinite or
    no number.
    """

    name: str
    flops_per_device: float | None = None
    memory: Memory | None = None
    collectives: tuple[Collective, ...] | None = None
    seconds: Seconds | None = None
    losses: tuple[float | None, ...] = ()
    shardings: tuple[ProgramArray, ...] = ()
    work: Work | None = None
    ideal: Work | None = None
    trace: Trace | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LiveBytes:
    """Arrays alive on one device after a run: how many of one owner, and their bytes there."""

    device: int
    owner: str
    arrays: int
    bytes: int
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    """Something a reviewer should be told; `array` is a path, `bytes` what fixing it would save."""

    level: Level
    code: str
    message: str
    array: str | None = None
    bytes: int | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """Where a Snapshot came from: the producer's kind, the target, when, and with which versions."""

    kind: Kind
    target: str | None
    created: str
    versions: dict[str, str] = field(default_factory=dict)
    processes: int = 1
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ArrayTransfer:
    """What a change of layout does to one array, its bytes counted on all devices of the new layout.

    `kept` bytes were on the same device before, `moved` bytes were not. `unequal` is how many elements
    have other bits after they were restored, None where nothing was restored; `first_unequal` is the
    index of the first of them.
    """

    path: str
    elements: int
    bytes: int
    kept: int
    moved: int
    unequal: int | None = None
    first_unequal: tuple[int, ...] | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Transfer:
    """What moved when this Snapshot's layout took over the train state of another layout.

    `routes` holds (source device, target device, bytes) for each pair between which bytes move; source
    and target are the same device for the bytes that it kept.
    """

    saved_layout: dict[str, Any] | None
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    routes: tuple[tuple[int, int, int], ...]
    arrays: tuple[ArrayTransfer, ...]
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Snapshot:
    """Everything that was found about one layout."""

    source: Source
    layout: dict[str, Any] | None
    mesh: Mesh | None
    arrays: tuple[Array, ...]
    programs: tuple[Program, ...] = ()
    findings: tuple[Finding, ...] = ()
    live: tuple[LiveBytes, ...] | None = None
    transfer: Transfer | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def array(self, path: str) -> Array:
        """The array at `path`.

        Raises:
          InvalidInput: there is none; the sentence names the nearest paths.
        """
        for candidate in self.arrays:
            if candidate.path == path:
                return candidate
        near = difflib.get_close_matches(path, [a.path for a in self.arrays], n=3, cutoff=0.3)
        hint = f"; the nearest are {', '.join(shown(p, 200) for p in near)}" if near else ""
        raise InvalidInput(f"there is no array {shown(path)} in this Snapshot{hint}")

    def program(self, name: str) -> Program | None:
        return next((program for program in self.programs if program.name == name), None)

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, "version": VERSION, **record.encode(self)}


def from_json(value: Any, what: str = "the Snapshot") -> Snapshot:
    """Read a Snapshot from parsed JSON.

    Raises:
      InvalidInput: it is not a Snapshot, is of a newer version, or contradicts itself.
    """
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise InvalidInput(f'{what} is not a sharding Snapshot: it must have "format": "{FORMAT}"')
    version = value.get("version")
    if type(version) is not int or version < 1:
        raise InvalidInput(f"{what} has version {shown(version)}, but must have an integer from 1")
    if version > VERSION:
        raise InvalidInput(
            f"{what} has version {shown(version)}, but this program reads up to version {VERSION}: "
            "open it with a newer Sharding Inspector"
        )
    body = {key: part for key, part in value.items() if key not in ("format", "version")}
    try:
        snapshot = record.decode(Snapshot, body)
    except InvalidInput as refused:
        raise InvalidInput(f"{what}: {refused}") from None
    for check in (_check_mesh, _check_arrays):
        check(snapshot, what)
    return snapshot


def read(path: str | os.PathLike[str]) -> Snapshot:
    """Read a Snapshot file.

    Raises:
      InvalidInput: it cannot be opened or is not a Snapshot.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:  # a zero byte in the path
        raise InvalidInput(f"{str(path)!r} cannot be read: {error}") from None
    return from_json(strict_json.parse(content, str(path)), str(path))


def dumps(snapshot: Snapshot) -> str:
    """The Snapshot as JSON text, one array or program a line so that two files compare line by line."""
    plain = snapshot.to_json()
    parts = []
    for key, value in plain.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            rows = ",\n  ".join(json.dumps(row, allow_nan=False) for row in value)
            parts.append(f"{json.dumps(key)}: [\n  {rows}\n ]")
        else:
            parts.append(f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}")
    return "{" + ",\n ".join(parts) + "}\n"


def write(snapshot: Snapshot, path: str | os.PathLike[str]) -> None:
    """Write a Snapshot file whole or not at all.

    Raises:
      InvalidInput: the file cannot be written.
    """
    output.write_text(dumps(snapshot), path)


def _check_mesh(snapshot: Snapshot, what: str) -> None:
    mesh = snapshot.mesh
    if mesh is None:
        return
    names: set[str] = set()
    for i, axis in enumerate(mesh.axes):
        if axis.size < 1:
            raise InvalidInput(
                f"{what}: mesh.axes[{i}].size is {axis.size}, but must be at least 1"
            )
        if axis.name in names:
            raise InvalidInput(
                f"{what}: mesh.axes[{i}].name is {shown(axis.name)}, but an axis before it is "
                "called so, and every axis must have a name of its own"
            )
        names.add(axis.name)
    if len(mesh.devices) != mesh.size:
        # Not the product itself: it can have more digits than Python prints.
        raise InvalidInput(
            f"{what}: mesh.devices has {len(mesh.devices)} entries, but must have as many "
            f"as axes of {shown('x'.join(map(str, mesh.shape)))} make"
        )
    if len(set(mesh.devices)) != mesh.size:
        raise InvalidInput(
            f"{what}: mesh.devices names a device twice, but each must be there once"
        )
    if mesh.processes is not None and len(mesh.processes) != mesh.size:
        raise InvalidInput(
            f"{what}: mesh.processes has {len(mesh.processes)} entries, "
            f"but must have one for each of {mesh.size} devices"
        )


def _check_arrays(snapshot: Snapshot, what: str) -> None:
    names = set(snapshot.mesh.axis_names) if snapshot.mesh else set()
    seen: set[str] = set()
    for array in snapshot.arrays:
        if array.path in seen:
            raise InvalidInput(f"{what}: the array {shown(array.path)} is there twice")
        seen.add(array.path)
        where = f"{what}: {shown(array.path, 200)}"
        rank = None if array.shape is None else len(array.shape)
        for label in ("spec", "logical_axes", "shard_shape"):
            entries = getattr(array, label)
            if entries is not None and rank is not None and len(entries) != rank:
                raise InvalidInput(
                    f"{where} has {len(entries)} entries in {label}, "
                    f"but must have one for each of {rank} dimensions"
                )
        used = [axis for entry in array.spec or () for axis in entry or ()]
        for axis in used:
            if axis not in names:
                raise InvalidInput(f"{where} is split over {shown(axis)}, which the mesh lacks")
        if len(set(used)) != len(used):
            raise InvalidInput(f"{where} uses a mesh axis twice in its spec, but may only once")
        _check_shards(array, where)


def _check_shards(array: Array, where: str) -> None:
    if array.shape is None:
        if array.shards is not None:
            raise InvalidInput(f"{where} has shards, but no shape that they could be parts of")
        return
    for i, shard in enumerate(array.shards or ()):
        if len(shard.index) != len(array.shape) or not all(
            start <= stop <= size
            for (start, stop), size in zip(shard.index, array.shape, strict=True)
        ):
            ranges = ", ".join(f"{start}:{stop}" for start, stop in shard.index)
            raise InvalidInput(
                f"{where}: shards[{i}].index is {shown(f'[{ranges}]')}, but must be a range "
                f"inside each dimension of {shown(str(array.shape))}"
            )
