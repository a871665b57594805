"""The mesh of the programs of HLO texts: named in the text, given by the user, or derived from shardings."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from inspector.compiled.memory_use import path_of
from inspector.hlo import entry, shardings
from inspector.hlo.entry import EntryValue
from inspector.hlo.module import Module
from inspector.hlo.shapes import jax_dtype
from inspector.hlo.shardings import HloSharding, NamedMesh, shards_of
from inspector.readers import limits
from inspector.readers.imported_array import UNKNOWN_DTYPE, ImportedArrays, SavedSharding, Stored
from inspector.records.snapshot import Array, Finding, Group, Mesh, MeshAxis, ProgramArray, Spec
from inspector.sharding.array_groups import group_of_path
from inspector.text.errors import InvalidInput
from inspector.text.formatting import counted, numbered

# XLA invents axes named `axis_0`, which differ between instructions.
_INVENTED_AXIS = re.compile(r"_?axis_\d+")
_GROUPS = re.compile(r"replica_groups\s*+=\s*+(mesh\[[^\]]*+\](?:,\s*+device_ids=\([^()]*+\))?+)\s*+\{")
# Meshes in replica groups, of which a hostile text could have many.
_MOST_GROUP_MESHES = 1_000


@dataclass(frozen=True)
class FoundMesh:
    """The mesh of the programs with the most devices.

    Attributes:
      how: `named` in the text, `given` by the user, or `derived` from shardings with invented names.
      record: the mesh with the device ids of the device assignment, or with positions if it is unknown.
      numbered: whether the device ids are known.
    """

    mesh: NamedMesh
    how: Literal["named", "given", "derived"]
    record: Mesh
    numbered: bool


def devices_of(module: Module) -> int | None:
    """Return the number of devices in the module's header, None without one."""
    if module.partitions is None and module.replicas is None:
        return None
    return (module.partitions or 1) * (module.replicas or 1)


def find_mesh(
    modules: Sequence[Module],
    given: NamedMesh | None = None,
    assignments: Iterable[tuple[int, ...]] = (),
) -> FoundMesh | None:
    """Return the mesh of the programs with the most devices, None if no mesh expresses their shardings.

    Args:
      modules: the programs, also their texts before optimizations.
      given: the user's mesh, for texts that name none.
      assignments: device ids by position of each program, if known.

    Raises:
      InvalidInput: the given mesh has another number of devices than the programs.
    """
    sizes = [size for module in modules if (size := devices_of(module)) is not None]
    named, unnamed = _written(modules)
    if not sizes:  # a header without the number of devices
        sizes = [s.devices for s in unnamed if s.devices is not None and s.device is None]
    devices = max(sizes, default=None)
    counts = {mesh: count for mesh, count in named.items() if devices is None or mesh.size == devices}
    if counts:
        best = max(counts, key=lambda mesh: (mesh.order is None, counts[mesh]))
        return found_mesh(best, "named", assignments)
    if given is not None:
        if devices is not None and given.size != devices:
            raise InvalidInput(
                f"--mesh has {counted(given.size, 'device')}, but the program runs on {devices:,}"
            )
        return found_mesh(given, "given", assignments)
    if devices is None or devices < 2:
        return None
    derived = shardings.derived_mesh(unnamed, devices)
    if derived is None or (not unnamed and len(derived.axes) == 1):
        return None
    return found_mesh(derived, "derived", assignments)


def _written(modules: Iterable[Module]) -> tuple[Counter[NamedMesh], list[HloSharding]]:
    """Return how often each mesh with names of the program occurs, and the shardings without names."""
    named: Counter[NamedMesh] = Counter()
    unnamed: list[HloSharding] = []
    for module in modules:
        named.update(mesh for mesh in entry.named_meshes(module).values() if mesh.axes)
        values = (*(entry.inputs(module) or ()), *(entry.outputs(module) or ()))
        for sharding in (value.sharding for value in values):
            if sharding is None:
                continue
            if sharding.mesh is not None and not _is_invented(sharding.mesh):
                named[sharding.mesh] += 1
            else:
                unnamed.append(sharding)
        for mesh in _meshes_of_groups(module):
            if _is_invented(mesh):
                parts = tuple((shardings.PlaceDigit(size, mesh.strides[name]),) for name, size in mesh.axes)
                unnamed.append(HloSharding(parts, mesh.size, mesh.order))
            else:
                named[mesh] += 1
    return named, unnamed


def _meshes_of_groups(module: Module) -> Iterator[NamedMesh]:
    written: dict[str, None] = {}
    for _, instruction in module.instructions:
        if len(written) == _MOST_GROUP_MESHES:
            break
        if match := _GROUPS.search(instruction.attributes_text):
            written.setdefault(match[1])
    for text in written:
        try:
            yield shardings.named_mesh(text)
        except InvalidInput:
            continue


def positions_of(mesh: NamedMesh) -> Sequence[int]:
    """Return the position in the device assignment of each device in mesh order."""
    if mesh.order is None:
        return range(mesh.size)
    positions: list[int] = mesh.order.positions().tolist()
    return positions


def _is_invented(mesh: NamedMesh) -> bool:
    return any(_INVENTED_AXIS.fullmatch(name) for name, _ in mesh.axes)


def found_mesh(
    mesh: NamedMesh,
    how: Literal["named", "given", "derived"],
    assignments: Iterable[tuple[int, ...]] = (),
) -> FoundMesh | None:
    """Return a mesh with its record, None if it has too many devices."""
    if not 0 < mesh.size <= limits.MOST_DEVICES:
        return None
    ids = next((assignment for assignment in assignments if len(assignment) == mesh.size), None)
    order = positions_of(mesh)
    record = Mesh(
        tuple(MeshAxis(name, size) for name, size in mesh.axes),
        tuple(order if ids is None else (ids[place] for place in order)),
        abstract=ids is None,
    )
    return FoundMesh(mesh, how, record, ids is not None)


# The inputs and outputs of programs in HLO text as arrays of a Snapshot.
#
# The text after optimizations has the shapes of shards; the text before has global shapes and the names of
# mesh axes. Either one is enough. What neither has is unknown.


SHARDING_UNKNOWN = "sharding-unknown"
# XLA's names of types that differ from those of NumPy and JAX.
# Listed in one Snapshot: 20 bytes of text can place an array on 131,072 devices.
_MOST_SHARDS = 131_072
# XLA's numbers of memory spaces.
MEMORY_KINDS = {0: "device", 5: "pinned_host"}
_FIRST_KEYS: dict[str, Group] = {"batch": "batch"}


Values = tuple[EntryValue, ...]


@dataclass(frozen=True)
class ProgramText:
    """The texts of one program.

    Attributes:
      module: the last text.
      before: the text before optimizations. None if unknown.
    """

    name: str
    module: Module
    before: Module | None = None

    @property
    def modules(self) -> tuple[Module, ...]:
        return (self.module,) if self.before is None else (self.before, self.module)


@dataclass(frozen=True)
class _Value:
    """One input or output: the value before partitioning and the one after, of which one can be unknown."""

    role: Literal["input", "output"]
    number: int
    whole: EntryValue | None
    shard: EntryValue | None
    partitions: int

    @property
    def sharding(self) -> HloSharding | None:
        """The compiled sharding, or the requested one if propagation could not change it."""
        whole = self.whole.sharding if self.whole else None
        shard = self.shard.sharding if self.shard else None
        if whole is None or (whole.open and shard is not None):
            return shard
        return None if whole.open and self.partitions > 1 else whole

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The global shape. From a shard it is exact, because JAX refuses uneven inputs and outputs."""
        if self.whole is not None:
            return _dimensions(self.whole)
        piece = self.shard_shape
        if not piece or self.partitions == 1:  # a scalar is never split
            return piece
        if self.sharding is None or self.sharding.problem is not None:
            return None
        ways = self.sharding.ways
        if len(ways) > len(piece):
            return None
        return tuple(size * n for size, n in zip(piece, (*ways, *(1,) * len(piece)), strict=False))

    @property
    def shard_shape(self) -> tuple[int, ...] | None:
        """The shape of a shard as compiled."""
        return None if self.shard is None else _dimensions(self.shard)


class HloArrays:
    """The arrays of all programs on one mesh."""

    def __init__(self, mesh: FoundMesh | None) -> None:
        self._mesh = mesh
        self._imported = ImportedArrays(mesh=None if mesh is None else mesh.record)
        self._known: dict[tuple[HloSharding, int], Spec | None] = {}
        self._ids_left = limits.MOST_DEVICES_TOGETHER
        self._shards_left = _MOST_SHARDS

    def add(self, program: ProgramText, devices: int | None) -> tuple[ProgramArray, ...]:
        """Add the inputs and outputs of one program, and return them as those of its record."""
        values = list(_values(program, devices or 1))
        return self._add_all(program.name, values, entry.donated(program.module))

    def add_values(
        self,
        program: str,
        inputs: Sequence[EntryValue],
        outputs: Sequence[EntryValue],
        devices: int,
        donated: frozenset[int],
    ) -> tuple[ProgramArray, ...]:
        """Add inputs and outputs with global shapes, and return them as those of the program's record."""
        values = [_Value("input", n, value, None, devices) for n, value in enumerate(inputs)]
        values += [_Value("output", n, output, None, devices) for n, output in enumerate(outputs)]
        return self._add_all(program, values, donated)

    def _add_all(
        self, program: str, values: Sequence[_Value], reused: frozenset[int]
    ) -> tuple[ProgramArray, ...]:
        records = []
        for value, path in zip(values, numbered(map(_path, values)), strict=True):
            full = f"{program}/{path}"
            self._add(full, value, program)
            array = self._imported.arrays[-1]
            records.append(
                ProgramArray(
                    value.role,
                    full,
                    None,
                    array.spec,
                    None,
                    donated=value.role == "input" and value.number in reused,
                )
            )
        return tuple(records)

    @property
    def arrays(self) -> tuple[Array, ...]:
        return tuple(self._imported.arrays)

    def findings(self) -> Iterator[Finding]:
        """Yield one finding for all arrays whose sharding is unknown, and those about single arrays."""
        yield from self._imported.findings
        unknown = [
            array.path
            for array in self._imported.arrays
            if array.spec is None and array.shards is None and array.sharding
        ]
        if unknown:
            first = ", ".join(unknown[:3])
            more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
            message = f"The texts do not contain the sharding of {first}{more}."
            yield Finding("note", SHARDING_UNKNOWN, message, array=unknown[0])

    def _add(self, path: str, value: _Value, program: str) -> None:
        given = value.shard or value.whole
        dtype = UNKNOWN_DTYPE if given is None or given.shape is None else jax_dtype(given.shape.dtype)
        space = given.memory_space if given is not None else 0
        saved = self._saved(value)
        kind = MEMORY_KINDS.get(space, f"memory space {space}")
        stored = Stored(value.shape, dtype)
        group = _group(value)
        if saved is None:
            self._imported.add(path, stored, None, group=group, program=program)
            array = replace(
                self._imported.arrays[-1],
                memory_kind=kind,
                sharding=_reason(value),
            )
        else:
            saved = replace(saved, memory_kind=kind)
            self._imported.add(path, stored, saved, group=group, program=program)
            array = self._imported.arrays[-1]
        piece = value.shard_shape
        if piece is not None and array.shard_shape is None:
            size = stored.itemsize
            nbytes = None if size is None else math.prod(piece) * size
            array = replace(array, shard_shape=piece, bytes_per_device=nbytes)
        self._imported.arrays[-1] = array

    def _saved(self, value: _Value) -> SavedSharding | None:
        """Return the sharding of a value on the mesh, None if it is unknown."""
        mesh, sharding, shape = self._mesh, value.sharding, value.shape
        if mesh is None or shape is None:
            return None
        if sharding is None:
            # A shard that is the whole array is on every device.
            if value.shard is None or shape != value.shard_shape:
                return None
            sharding = HloSharding()
        if sharding.problem is not None:
            return None
        rank = len(shape)
        if sharding.device is not None:
            return SavedSharding(device=_id_at(sharding.device, mesh))
        unreduced = shardings.axes_on(sharding.unreduced, mesh.mesh) or ()
        spec = self._spec(sharding, mesh, rank)
        if spec is not None:
            return SavedSharding(mesh.record, spec, unreduced=unreduced)
        if sharding.devices != mesh.mesh.size or mesh.mesh.size > self._shards_left:
            return None
        self._shards_left -= mesh.mesh.size
        return SavedSharding(
            shards=shards_of(sharding, shape, mesh.record.devices, positions_of(mesh.mesh)),
            unreduced=unreduced,
        )

    def _spec(self, sharding: HloSharding, mesh: FoundMesh, rank: int) -> Spec | None:
        key = (sharding, rank)
        if key not in self._known:
            permuted = sharding.order is not None or mesh.mesh.order is not None
            if permuted and not self._may_expand(mesh.mesh.size):
                return None
            self._known[key] = shardings.spec_on(sharding, mesh.mesh, rank)
        return self._known[key]

    def _may_expand(self, devices: int) -> bool:
        """Return whether the ids of a sharding may be listed. A small text could have many such shardings."""
        self._ids_left -= devices
        return self._ids_left >= 0


def _values(program: ProgramText, partitions: int) -> Iterator[_Value]:
    """Yield the inputs and outputs. Two texts of a program with different numbers of them do not match."""
    last, before = program.module, program.before
    is_shard = entry.is_partitioned(last)
    sides: tuple[tuple[Literal["input", "output"], Callable[[Module], Values | None]], ...] = (
        ("input", entry.inputs),
        ("output", entry.outputs),
    )
    for role, read in sides:
        values = read(last)
        if values is None:
            continue
        other = None if before is None or not is_shard else read(before)
        if other is not None and len(other) != len(values):
            other = None
        for number, value in enumerate(values):
            if not is_shard:
                yield _Value(role, number, value, None, partitions)
            else:
                whole = other[number] if other else value if partitions == 1 else None
                yield _Value(role, number, whole, value, partitions)


def path_of_value(role: str, number: int, *values: EntryValue | None) -> str:
    """Return the path of an input or output in its program, such as `input/state/params/w`."""
    names = (value.op_name for value in values if value is not None)
    path = next(filter(None, map(path_of, names)), None)
    if role == "output" and path is not None:  # JAX calls the result `result`
        path = path.partition("/")[2] if path.startswith("result/") else ""
        return f"{role}/{path}".rstrip("/")
    return f"{role}/{path or number}"


def _path(value: _Value) -> str:
    return path_of_value(value.role, value.number, value.whole, value.shard)


def _group(value: _Value) -> Group:
    if value.role == "output":
        return "output"
    _, _, path = _path(value).partition("/")
    return group_of_path(path) or _FIRST_KEYS.get(path.partition("/")[0], "other")


def _reason(value: _Value) -> str:
    problems = [part.problem for part in (value.whole, value.shard) if part and part.problem]
    sharding = value.sharding
    return (sharding.problem if sharding else None) or (problems or ["not in the text"])[0]


def _dimensions(value: EntryValue) -> tuple[int, ...] | None:
    if value.shape is None or value.shape.parts is not None or None in value.shape.dimensions:
        return None
    return tuple(size for size in value.shape.dimensions if size is not None)


def _id_at(position: int, mesh: FoundMesh) -> int:
    """Return the device id at a position of the device assignment."""
    by_position = dict(zip(positions_of(mesh.mesh), mesh.record.devices, strict=True))
    return by_position.get(position, position)
