"""The Snapshot and the records that belong to it as a whole. None means unknown."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from inspector.files.sources import Kind
from inspector.records import typed_json
from inspector.records.snapshot.arrays import Array, Mesh, Spec
from inspector.records.snapshot.effects import Effects
from inspector.records.snapshot.programs import Program
from inspector.records.typed_json import OMIT_DEFAULT, OMIT_NONE, Amount, NonNegativeInt, PositiveInt, Record
from inspector.text.errors import InvalidInput, shown

MoveOperation = Literal["device_put", "with_sharding_constraint", "reshard", "jit"]


@dataclass(frozen=True)
class ReshardedArrays(Record):
    """Arrays of one shape and type that move in the same way.

    Attributes:
      count: Number of arrays in one execution.
      shape: Global shape, elements in each dimension.
      dtype: Element type as NumPy and JAX name it.
      bytes: Bytes of one array, counted once.
      source_spec: The PartitionSpec on the source mesh. None if the array had no NamedSharding.
      target_spec: The PartitionSpec on the target mesh. None if the array has no NamedSharding.
    """

    count: PositiveInt
    shape: tuple[NonNegativeInt, ...]
    dtype: str
    bytes: NonNegativeInt
    source_spec: Spec | None
    target_spec: Spec | None


@dataclass(frozen=True)
class Reshard(Record):
    """Arrays that one line of a program moves from some devices to others, or to another sharding.

    Attributes:
      operation: The operation that moves them. jit: arguments of a jitted function on other devices.
      line: File and line of the program, such as train.py:31. None if unknown.
      executions: How often the line did exactly this.
      source_devices: Device ids before the move, in the order of the sharding.
      target_devices: Device ids after the move, in the order of the sharding.
      source_mesh: The mesh that `source_spec` refers to. None without a NamedSharding.
      target_mesh: The mesh that `target_spec` refers to. None without a NamedSharding.
      arrays: The arrays of one execution, by shape, type and sharding.
      routes: Bytes of one execution from one device to another, as [source device id, target device id,
        bytes]. Bytes that were on the target device before are not sent. Of several copies, the first in the
        order of the source devices sends. None if a sharding is unknown.
    """

    operation: MoveOperation
    line: str | None
    executions: PositiveInt
    source_devices: tuple[NonNegativeInt, ...]
    target_devices: tuple[NonNegativeInt, ...]
    source_mesh: Mesh | None
    target_mesh: Mesh | None
    arrays: tuple[ReshardedArrays, ...]
    routes: tuple[tuple[NonNegativeInt, NonNegativeInt, NonNegativeInt], ...] | None

    @property
    def count(self) -> int:
        """Number of arrays in one execution."""
        return sum(array.count for array in self.arrays)

    @property
    def bytes(self) -> int:
        """Bytes of the arrays of one execution, each counted once."""
        return sum(array.count * array.bytes for array in self.arrays)

    @property
    def moved(self) -> int | None:
        """Bytes that go from one device to another in one execution; None if unknown."""
        return None if self.routes is None else sum(size for _, _, size in self.routes)


FORMAT = "sharding-snapshot"
VERSION = 1

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Source(Record):
    """The origin of a Snapshot.

    Attributes:
      kind: The producer: plan (nothing compiled), cpu (run on emulated devices), local (run on this
        machine's accelerators), tpu and gpu (compiled), capture (a user's job), or a file format.
      target: The target: plan, cpu, local, tpu:<generation>:<topology>, several slices with
        *<count>, or gpu:<chip>:<count>.
      created: Time of creation in ISO 8601.
      versions: Version of each library that took part, by library name.
      processes: Number of processes that took part.
      devices: Number of devices that the processes have together, also of those that no array and no program
        uses. None if unknown.
      device_kind: Kind of the devices as JAX names it. None if it is unknown, or a mesh has it.
      unsafe_compiler_options: Options of XLA that only the command line takes, with which the programs were
        compiled: text for the reader, never given to a compiler again. None without any.
      file: Name of the file that was read, or of the program that `run` recorded. None for another origin.
      step: Number of the training step that the checkpoint has. None if unknown, and for another origin.
      saved: Time when the checkpoint was complete, in ISO 8601. None if unknown, and for another origin.
    """

    kind: Kind
    target: str | None
    created: str
    versions: dict[str, str] = field(default_factory=dict)
    processes: NonNegativeInt = 1
    devices: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)
    device_kind: str | None = field(default=None, metadata=OMIT_NONE)
    unsafe_compiler_options: str | None = field(default=None, metadata=OMIT_NONE)
    file: str | None = field(default=None, metadata=OMIT_NONE)
    step: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)
    saved: str | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class Finding(Record):
    """A problem or a note for the reviewer.

    Attributes:
      level: The severity.
      code: The kind of finding, such as replicated-parameter or indivisible.
      message: The finding in one sentence.
      array: Path of the array. None if the finding concerns no array or several.
      bytes: Bytes that a fix would save, or that a constant or an unused donation takes.
      per_device: Whether `bytes` are those of one device. Otherwise they depend on the code.
      arrays: Paths of the arrays that it is about, similar ones folded: params/block_{0…3}/W2. None if it is
        about none.
      count: Number of arrays that it is about. None if it is about none.
      remedy: The fix, in one sentence. None if none is known.
      axes: Mesh axes that it is about, or that would fix it. None if it is about none.
      logical_axis: Logical axis that it is about. None if it is about none.
      logical_axes: Logical axes whose rules may fix it. None if it does not say.
      dimension: Position of the dimension that it is about, from 0. None if it is about none.
      rule: Number of the rule that it is about, from 0. None if it is about none.
      rule_text: This rule, such as `hidden → model`.
      rules: The rules that it is about, if they are not numbered. None if it is about none.
      unknown_name: Name in this rule that is no logical axis of the model. None if the name is known.
      cause: Why Linen and nnx read the rules differently: order, unmatched, conflict or repeated. None if it
        is not about that.
      program: Name of the program that it is about. None if it is about none, or if the message names it.
      path: Path of the input or output of a program that it is about. None if it is about none.
      collective: Name of the collective that it is about. None if it is about none.
      source: File and line of the operation that it is about, such as file.py:31. None if unknown.
      wire_bytes: Bytes that one device sends in one run because of it. None if it is not about traffic.
      ratio: FLOPs of all devices, divided by those of the program before it was partitioned, without a unit.
        None if it is not about FLOPs.
      needed: Bytes of memory that the program needs on one device. None if it fits, or if unknown.
      available: Bytes of memory of one device. None if the program fits, or if unknown.
      compiler: The compiler's message. None if no compiler rejected the program.
      mesh: The position in `other_meshes` of the mesh that it is about. None for `mesh`, or if there is none.
    """

    level: Level
    code: str
    message: str
    array: str | None = None
    bytes: NonNegativeInt | None = None
    per_device: bool = field(default=False, metadata=OMIT_DEFAULT)
    arrays: tuple[str, ...] | None = field(default=None, metadata=OMIT_NONE)
    count: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)
    remedy: str | None = field(default=None, metadata=OMIT_NONE)
    axes: tuple[str, ...] | None = field(default=None, metadata=OMIT_NONE)
    logical_axis: str | None = field(default=None, metadata=OMIT_NONE)
    logical_axes: tuple[str, ...] | None = field(default=None, metadata=OMIT_NONE)
    dimension: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)
    rule: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)
    rule_text: str | None = field(default=None, metadata=OMIT_NONE)
    rules: tuple[str, ...] | None = field(default=None, metadata=OMIT_NONE)
    unknown_name: str | None = field(default=None, metadata=OMIT_NONE)
    cause: str | None = field(default=None, metadata=OMIT_NONE)
    program: str | None = field(default=None, metadata=OMIT_NONE)
    path: str | None = field(default=None, metadata=OMIT_NONE)
    collective: str | None = field(default=None, metadata=OMIT_NONE)
    source: str | None = field(default=None, metadata=OMIT_NONE)
    wire_bytes: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)
    ratio: Amount | None = field(default=None, metadata=OMIT_NONE)
    needed: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)
    available: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)
    compiler: str | None = field(default=None, metadata=OMIT_NONE)
    mesh: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class LiveBytes(Record):
    """Arrays of one owner that are alive on one device after a run.

    Attributes:
      device: Id of the device.
      owner: The owner of the arrays: state, batch, output, or nobody.
      arrays: Number of arrays.
      bytes: Bytes of these arrays on the device.
    """

    device: NonNegativeInt
    owner: str
    arrays: NonNegativeInt
    bytes: NonNegativeInt


@dataclass(frozen=True)
class Snapshot(Record):
    """The mesh, the arrays and the programs of one layout. Unknown keys of all objects are kept.

    Attributes:
      source: The origin of the Snapshot.
      layout: The inspected layout, in the form of a layout file.
      mesh: The mesh.
      arrays: All arrays. A plan has weights and caches in the order in which the code first uses them.
      programs: All programs. Empty if nothing was compiled.
      findings: Problems and notes for the reviewer.
      live: Bytes that are alive on each device after a run, by owner. None if not measured.
      effects: The effect of changes of the layout. None if they were not computed.
      partitioned: The same programs after XLA's partitioner, beside those in `programs`: before a compile and
        after the passes for other platforms (`Program.platform`). Without origins. None if they are unknown.
      other_meshes: The meshes of a job that uses several, without `mesh`. Arrays and programs on them have
        their index in `Array.mesh` and `Program.mesh`.
      most_alive_bytes: Most bytes of arrays that were alive at one time on one device of a recorded program.
        None if not recorded.
      reshards: Committed arrays that a recorded program moved between devices outside of compiled programs,
        those with the most bytes first. Empty if it moved none, or if it was not recorded.
      assembly: Of the guide about arrays from parts: the request, and the parts that JAX joined. None for
        other origins.
      host_local: Of the guide about several processes: the request, and the view of each process. None for
        other origins.

    Example:
      >>> import jax
      >>> from inspector import capture
      >>> state = {"kernel": jax.numpy.zeros((1024, 512)), "bias": jax.numpy.zeros(512)}
      >>> snapshot = capture(state)
      >>> {array.path: array.bytes for array in snapshot.arrays}
      {'bias': 2048, 'kernel': 2097152}
      >>> snapshot.array("kernel").shape
      (1024, 512)
    """

    source: Source
    layout: dict[str, Any] | None
    mesh: Mesh | None
    arrays: tuple[Array, ...]
    programs: tuple[Program, ...] = ()
    findings: tuple[Finding, ...] = ()
    live: tuple[LiveBytes, ...] | None = None
    effects: Effects | None = field(default=None, metadata=OMIT_NONE)
    partitioned: tuple[Program, ...] | None = field(default=None, metadata=OMIT_NONE | {"key": "propagated"})
    other_meshes: tuple[Mesh, ...] = field(default=(), metadata=OMIT_DEFAULT)
    most_alive_bytes: NonNegativeInt | None = field(default=None, metadata=OMIT_NONE)
    reshards: tuple[Reshard, ...] = field(default=(), metadata=OMIT_DEFAULT)
    assembly: dict[str, Any] | None = field(default=None, metadata=OMIT_NONE)
    host_local: dict[str, Any] | None = field(default=None, metadata=OMIT_NONE)

    @property
    def meshes(self) -> tuple[Mesh, ...]:
        """All meshes, `mesh` first. Mesh 2 in texts is the second of these."""
        return (() if self.mesh is None else (self.mesh,)) + self.other_meshes

    def mesh_of(self, record: Array | Program) -> Mesh | None:
        """Return the mesh that the spec of an array, or the mesh axes of a program, refer to.

        Two meshes can have axes of the same name, so never read a spec with another mesh. The mesh of a
        program on one device has no axes.
        """
        if self.mesh is not None and isinstance(record, Program) and record.device is not None:
            return Mesh((), (record.device,), device_kind=self.mesh.device_kind)
        return self.mesh if record.mesh is None else self.other_meshes[record.mesh]

    def indexed_meshes(self) -> Iterator[tuple[int | None, Mesh | None]]:
        """Yield each mesh with its index in `Array.mesh` and `Program.mesh`: `mesh` with None, first."""
        yield None, self.mesh
        yield from enumerate(self.other_meshes)

    def on_each_mesh(self) -> tuple[Snapshot, ...]:
        """Return a Snapshot for each mesh, with the arrays and programs on it.

        For questions about one mesh, such as which arrays are replicated on it. A Snapshot with at most one
        mesh is returned as it is. Findings and facts of the whole job are left out of those of other meshes.
        """
        if not self.other_meshes:
            return (self,)

        def on(programs: tuple[Program, ...], index: int | None) -> tuple[Program, ...]:
            return tuple(replace(program, mesh=None) for program in programs if program.mesh == index)

        return tuple(
            replace(
                self,
                mesh=mesh,
                other_meshes=(),
                arrays=tuple(replace(array, mesh=None) for array in self.arrays if array.mesh == index),
                programs=on(self.programs, index),
                findings=self.findings if index is None else (),
                live=self.live if index is None else None,
                reshards=self.reshards if index is None else (),
                effects=self.effects if index is None else None,
                partitioned=on(self.partitioned or (), index) or None,
            )
            for index, mesh in self.indexed_meshes()
        )

    def array(self, path: str) -> Array:
        """Return the array at `path`.

        Raises:
          InvalidInput: no array has this path; the error suggests similar paths.
        """
        for candidate in self.arrays:
            if candidate.path == path:
                return candidate
        near = difflib.get_close_matches(path, [a.path for a in self.arrays], n=3, cutoff=0.3)
        hint = f"; similar paths: {', '.join(shown(p, 200) for p in near)}" if near else ""
        raise InvalidInput(f"this Snapshot has no array {shown(path)}{hint}")

    def program(self, name: str) -> Program | None:
        return next((program for program in self.programs if program.name == name), None)

    def to_json(self) -> dict[str, Any]:
        return typed_json.encode_file(self, FORMAT, VERSION)
