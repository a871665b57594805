"""Facts about one Snapshot that all checks of the audit use, and a function to make findings."""

from __future__ import annotations

import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypedDict, Unpack

from inspector.model.built_in.catalogue import semantics
from inspector.prediction.step_program import equal_programs
from inspector.records.snapshot import Array, Finding, Level, Mesh, Program, Shard, Snapshot, Spec
from inspector.sharding import placement
from inspector.sharding.folding import Fold, fold
from inspector.sharding.memory_kinds import in_host_memory
from inspector.sharding.rules import Rule, RulesSemantics
from inspector.sharding.rules.written import recorded
from inspector.sharding.totals import STATE_GROUPS, in_elements
from inspector.text.formatting import bytes_text, counted

# Findings need at least this share of the memory, traffic or work of one device. MaxText tolerates 2% of
# unsharded parameters (`sharding_tolerance`); arrays add up, so half of that.
LEAST_SHARE = 0.01
# Below this, no share matters.
LEAST_BYTES = 1024
# The rest of the findings of one kind are combined into one.
MOST_OF_A_KIND = 5
# MaxText and Orbax write keys as `['name']`, `[0]` and `.name`.
_QUOTES = ".[]'\""
_MOST_KEYS = 64  # of a path that are compared
# More than six free mesh axes larger than 1 need a mesh of at least 128 devices.
_MOST_FREE_AXES = 6


@dataclass(frozen=True)
class AuditContext:
    """A Snapshot with a mesh, and facts about it.

    in_elements: no dtype is known, so every number of bytes is a number of elements.
    """

    snapshot: Snapshot
    mesh: Mesh
    in_elements: bool = False

    @classmethod
    def of(cls, snapshot: Snapshot, mesh: Mesh) -> AuditContext:
        elements = in_elements(snapshot)
        return cls(elements or snapshot, mesh, elements is not None)

    @functools.cached_property
    def rules(self) -> tuple[Rule, ...] | None:
        return recorded(self.snapshot)

    @functools.cached_property
    def semantics(self) -> RulesSemantics:
        return semantics(self.snapshot)

    @property
    def decided_by(self) -> str:
        """What decides the sharding of arrays: `rule` or `PartitionSpec`."""
        has_rules = self.rules is not None or any(a.logical_axes for a in self.snapshot.arrays)
        return "rule" if has_rules else "PartitionSpec"

    @functools.cached_property
    def state_bytes(self) -> int:
        """Bytes of train state on one device. Arrays with unknown placement count 0."""
        return sum(
            array.bytes_per_device or 0
            for array in self.snapshot.arrays
            if array.group in STATE_GROUPS and not in_host_memory(array, self.mesh)
        )

    @property
    def trains(self) -> bool:
        """Whether an array is known to be optimizer state: inference has parameters, too."""
        return any(array.group == "opt_state" for array in self.snapshot.arrays)

    @property
    def least(self) -> float:
        """The smallest number of bytes per device that is worth a finding."""
        return max(LEAST_SHARE * self.state_bytes, LEAST_BYTES)

    @functools.cached_property
    def by_path(self) -> Mapping[str, Array]:
        """All arrays by their path."""
        return {array.path: array for array in self.snapshot.arrays}

    @functools.cached_property
    def parameters(self) -> dict[str, Array]:
        """The parameter that each array of the optimizer's state belongs to, by the array's path."""
        return parameters_of_moments(self.snapshot.arrays)

    @functools.cached_property
    def fold_paths(self) -> dict[str, str]:
        """The path of the fold of each parameter, by its path. One in host memory has its own path."""
        own = {array.path: array.path for array in self.parameters.values()}
        return own | {a.path: folded.path for folded in self.folds("params") for a in folded.arrays}

    @functools.cached_property
    def programs(self) -> tuple[Program, ...]:
        """The programs, of those with equal instructions only one."""
        firsts = {id(first) for first, *_ in equal_programs(self.snapshot)}
        return tuple(program for program in self.snapshot.programs if id(program) in firsts)

    @functools.cached_property
    def mapped(self) -> frozenset[str]:
        """The paths of the inputs of programs with a `shard_map`, whose in_specs can ask for all of them."""
        return frozenset(
            one.path
            for program in self.snapshot.programs
            if program.schedule is not None
            and any(
                "shard_map" in (operation.op_name or "").split("/")
                for computation in program.schedule.computations
                for operation in computation.operations
            )
            for one in program.shardings
            if one.role == "input"
        )

    @functools.cached_property
    def trivial(self) -> frozenset[str]:
        """Mesh axes of size 1."""
        return frozenset(axis.name for axis in self.mesh.axes if axis.size == 1)

    @functools.cached_property
    def arrays(self) -> tuple[Array, ...]:
        """The arrays in device memory with a known shape."""
        return tuple(
            array
            for array in self.snapshot.arrays
            if array.shape is not None and not in_host_memory(array, self.mesh)
        )

    def amount(self, number: int | None) -> str:
        """Return bytes, or elements if no dtype is known, as text."""
        if self.in_elements and number is not None:
            return counted(number, "element")
        return bytes_text(number)

    def of_group(self, *groups: str) -> list[Array]:
        if len(groups) > 1:
            return [array for array in self.arrays if array.group in groups]
        return self._by_group[groups[0]]

    @functools.cached_property
    def state_paths(self) -> Set[str]:
        """The paths of `state`, without arrays of an unknown role."""
        return {array.path for array in self.state if array.group != "other"}

    @functools.cached_property
    def _by_group(self) -> Mapping[str, list[Array]]:
        by_group: dict[str, list[Array]] = defaultdict(list)
        for array in self.arrays:
            by_group[array.group].append(array)
        return by_group

    @functools.cached_property
    def state(self) -> list[Array]:
        """The arrays of the train state in device memory with a known shape."""
        return self.of_group(*STATE_GROUPS)

    def held_text(self, arrays: Iterable[Array]) -> str:
        """Return the bytes of these arrays on one device as text."""
        return self.amount(sum(array.bytes_per_device or 0 for array in arrays))

    def folds(self, *groups: str) -> tuple[Fold, ...]:
        return fold(self.of_group(*groups))

    def is_replicated(self, array: Array) -> bool:
        """Return whether every device holds the whole array."""
        return array.replicas == self.mesh.size > 1 and (
            array.shards is None or array.bytes_per_device == array.bytes
        )

    def finest(self, array: Array) -> tuple[int, tuple[str, ...]]:
        """Return the least bytes per device that an even split allows, and the axes to add for it.

        If the spec is unknown, return the current bytes and no axes.
        """
        size = array.bytes_per_device or 0
        if array.spec is None or array.shape is None:
            return size, ()
        used = {axis for axes in array.spec for axis in axes or ()}
        free = [axis.name for axis in self.mesh.axes if axis.size > 1 and axis.name not in used]
        ways, axes = finest_split(array.shape, array.spec, self.mesh, free)
        return size // ways, axes

    def saved(self, array: Array) -> int:
        """Return the bytes per device that `finest` saves."""
        return (array.bytes_per_device or 0) - self.finest(array)[0]


def with_arrays_of_other_meshes(on_mesh: Snapshot, others: Sequence[Snapshot]) -> Snapshot:
    """Return the Snapshot of one mesh with the arrays of other meshes on the same devices, without specs.

    They take memory of the devices, and may be sharded over devices that differ along an axis of this mesh.
    Their shards are listed, and their replicas unknown: findings about them come from their mesh.
    """
    known: dict[object, tuple[Shard, ...] | None] = {}
    arrays = []
    for other in others:
        assert other.mesh is not None
        for array in other.arrays:
            key = (other.mesh, array.shape, array.spec)
            if array.shards is not None:
                shards: tuple[Shard, ...] | None = array.shards
            else:
                if key not in known:
                    known[key] = placement.shards(array, other.mesh)
                shards = known[key]
            arrays.append(replace(array, spec=None, shards=shards, replicas=None))
    return replace(on_mesh, arrays=(*on_mesh.arrays, *arrays)) if arrays else on_mesh


def finest_split(
    shape: Sequence[int], spec: Spec, mesh: Mesh, free: Sequence[str]
) -> tuple[int, tuple[str, ...]]:
    """Return the largest even split by free axes: the number of further parts, and the axes.

    On a tie, return the fewest axes.
    """
    sizes = mesh.sizes
    parts = [
        size // ways if size and size % ways == 0 else 0
        for size, ways in zip(shape, (mesh.ways(axes) for axes in spec), strict=True)
    ]
    return _finest(tuple(parts), tuple((axis, sizes[axis]) for axis in free[:_MOST_FREE_AXES]))


@functools.lru_cache(maxsize=4096)
def _finest(parts: tuple[int, ...], free: tuple[tuple[str, int], ...]) -> tuple[int, tuple[str, ...]]:
    best: tuple[int, tuple[str, ...]] = (1, ())
    for count in range(1, len(free) + 1):
        for chosen in itertools.combinations(free, count):
            ways = math.prod(size for _, size in chosen)
            if ways > best[0] and _fits(parts, tuple(size for _, size in chosen)):
                best = ways, tuple(name for name, _ in chosen)
    return best


def _fits(parts: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """Return whether each axis can split some dimension evenly. Axes can share a dimension."""
    if not sizes:
        return True
    first, *rest = sizes
    return any(
        part and part % first == 0 and _fits((*parts[:at], part // first, *parts[at + 1 :]), tuple(rest))
        for at, part in enumerate(parts)
    )


def fold_text(fold: Fold) -> str:
    """Return the path of a fold and its number of arrays: `params/block_{0…3}/W2 (4 arrays)`."""
    return fold.path if fold.count == 1 else f"{fold.path} ({counted(fold.count, 'array')})"


class FindingFields(TypedDict, total=False):
    """Fields of a Finding that only some checks set."""

    count: int
    axes: tuple[str, ...]
    logical_axis: str
    logical_axes: tuple[str, ...]
    rule: int
    rule_text: str
    rules: tuple[str, ...]
    unknown_name: str
    cause: str
    path: str
    collective: str
    source: str | None
    wire_bytes: int | None
    ratio: float


def finding(
    level: Level,
    code: str,
    message: str,
    *,
    folds: Sequence[Fold] = (),
    saved: int | None = None,
    remedy: str | None = None,
    **facts: Unpack[FindingFields],
) -> Finding:
    """Return a finding about these folds.

    Args:
      folds: the moments of a parameter can be one fold; the finding has the paths of the moments.
      saved: the bytes per device that a fix saves.
      remedy: the fix, as a sentence.
      facts: other fields of the finding.
    """
    named = fold(itertools.chain.from_iterable(folded.arrays for folded in folds))
    about: FindingFields = {"count": sum(folded.count for folded in folds)} if folds else {}
    return Finding(
        level,
        code,
        message,
        folds[0].first.path if folds else None,
        saved,
        per_device=saved is not None,
        arrays=tuple(folded.path for folded in named) if folds else None,
        remedy=remedy,
        **about | facts,
    )


Candidates = list[tuple[int, Fold]]


def largest(candidates: Iterable[tuple[int, Fold]], least: float) -> tuple[Candidates, Candidates]:
    """Return the folds that are worth a finding each, and those that share one, both largest first.

    Candidates are bytes per device with their folds. The second list is empty if its sum is below `least`.
    """
    ranked = sorted(candidates, key=lambda pair: -pair[0])
    single = [pair for pair in ranked if pair[0] >= least][:MOST_OF_A_KIND]
    rest = ranked[len(single) :]
    return single, rest if sum(saved for saved, _ in rest) >= least else []


def parameters_of_moments(arrays: Iterable[Array]) -> dict[str, Array]:
    """Return the parameter of each moment, by the moment's path, if it has a parameter.

    A moment has the shape of its parameter and the same end of the path. The longest common end wins, then
    the parameter with the shortest path. Keras writes the parameter's path into the name of the moment.
    Without a common end, as for a parameter that is one array, the only parameter of this shape is the one.
    """
    arrays = list(arrays)
    ends = Ends()
    # By shape, the parameters by their words.
    named: dict[tuple[int, ...] | None, dict[tuple[str, ...], Array]] = defaultdict(dict)
    for array in arrays:
        if array.group == "params":
            ends.add(array, array.shape)
            named[array.shape].setdefault(_words(array.path), array)
    longest = {shape: sorted({len(words) for words in own}, reverse=True) for shape, own in named.items()}
    parameters = {}
    for array in arrays:
        if array.group != "opt_state":
            continue
        _, parameter = ends.longest(array.path, array.shape)
        # Every parameter can have a scalar next to it, such as a count.
        if parameter is None and array.shape and (own := named.get(array.shape)):
            words = _words(array.path)
            parts = (words[at : at + size] for size in longest[array.shape] for at in range(len(words)))
            only = next(iter(own.values())) if len(own) == 1 else None
            parameter = next((own[part] for part in parts if part in own), only)
        if parameter is not None:
            parameters[array.path] = parameter
    return parameters


class Ends:
    """Arrays of several kinds by the keys of their paths, from the last to the first."""

    def __init__(self) -> None:
        self._next: dict[str, Ends] = defaultdict(Ends)
        self._ending: dict[object, tuple[int, Array]] = {}

    def add(self, array: Array, kind: object) -> None:
        """Add an array. Of several with an end, the first one of the fewest keys is kept."""
        node, keys = self, path_keys(array.path)
        for key in reversed(keys):
            node = node._next[key]
            count, kept = node._ending.get(kind, (0, array))
            if len(path_keys(kept.path)) > len(keys):
                kept = array
            node._ending[kind] = count + 1, kept

    def longest(self, path: str, kind: object) -> tuple[int, Array | None]:
        """Return the number of arrays of a kind with the longest common end with a path, and one."""
        node = self
        best: tuple[int, Array | None] = (0, None)
        for key in reversed(path_keys(path)):
            if key not in node._next or kind not in node._next[key]._ending:
                break
            node = node._next[key]
            best = node._ending[kind]
        return best


def path_keys(path: str) -> tuple[str, ...]:
    """Return the last keys of a path, without the signs in which MaxText and Orbax write them."""
    return tuple(key.strip(_QUOTES) for key in path.rsplit("/", _MOST_KEYS)[-_MOST_KEYS:])


def _words(path: str) -> tuple[str, ...]:
    return tuple("_".join(path_keys(path)).rsplit("_", _MOST_KEYS)[-_MOST_KEYS:])
