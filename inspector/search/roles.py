"""What a mesh axis can shard: the roles of mesh axes for a model, and the rules that several roles make.

A role is a usual way to use one mesh axis, such as FSDP: it shards the batch and one dimension of each
parameter. A candidate gives each mesh axis one role. The roles follow from the arrays of the model: the
logical axes of its batch, and those of its parameters.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from inspector.model import ModelEntry
from inspector.sharding.abstract import AbstractState
from inspector.sharding.rules import Rule

# Roles in mesh order. Devices that are neighbors on the last axis are nearest to each other, and the first
# axis is the one that crosses slices.
DATA, STAGE, FSDP, EXPERT, CONTEXT, TENSOR = "data", "stage", "fsdp", "expert", "context", "tensor"
MESH_ORDER = (DATA, STAGE, FSDP, EXPERT, CONTEXT, TENSOR)

# Logical axes with one of these names are experts, or layers that a scan stacks.
_EXPERTS = ("expert", "experts")
_STACKED = ("layers", "layer")


@dataclass(frozen=True)
class Role:
    """One use of a mesh axis.

    Attributes:
      axis: The name of the mesh axis. Each name has a single role in a candidate.
      logical: The logical axes that it shards.
    """

    axis: str
    logical: tuple[str, ...]


@dataclass(frozen=True)
class LogicalAxes:
    """The logical axes of a model by their part in it. Each is in at most one of them.

    Attributes:
      batch: Examples of the batch; None if the model does not name them.
      sequence: The other dimensions of batch arrays.
      experts: Experts of a mixture.
      width: The axis with the most bytes of parameters, which FSDP shards.
      parallel: Axes of parameters that tensor parallelism shards.
      stages: Stages of a pipeline, if their number varies; with axes outside of them that take its mesh axis.
    """

    batch: str | None
    sequence: tuple[str, ...]
    experts: tuple[str, ...]
    width: str | None
    parallel: tuple[str, ...]
    stages: tuple[str, ...] = ()


def logical_axes_of(entry: ModelEntry, state: AbstractState, stages: bool = False) -> LogicalAxes:
    """Return the logical axes of a model by their part in it.

    stages: whether the number of stages varies.
    """
    arrays = _named_arrays(entry, state)
    inputs = [names for group, names, _ in arrays if group == "batch"]
    batch = next((names[0] for names in inputs if names and names[0]), None)
    inside = {name for names in inputs for name in names[1:] if name}
    parameters = [(names, size) for group, names, size in arrays if group == "params"]
    bytes_of: dict[str, int] = {}
    for names, size in parameters:
        for name in dict.fromkeys(filter(None, names)):
            bytes_of[name] = bytes_of.get(name, 0) + size
    experts = tuple(name for name in bytes_of if name in _EXPERTS)
    staged: tuple[str, ...] = () if entry.pipeline is None else (entry.pipeline.stages,)
    kept = {
        name: size for name, size in bytes_of.items() if name not in (*experts, *_STACKED, *staged, batch)
    }
    # Of two equal ones, the dimension that the input has too.
    width = max(kept, key=lambda name: (kept[name], name in inside), default=None)
    names_of = [frozenset(filter(None, names)) for names, _ in parameters]
    parallel = _parallel({k: v for k, v in kept.items() if k != width}, names_of)
    sequence = tuple(sorted(inside - set(bytes_of)))
    if stages and entry.pipeline is not None:
        staged += tuple(name for name in entry.pipeline.outside if name in parallel)
    return LogicalAxes(batch, sequence, experts, width, parallel, staged if stages else ())


def _named_arrays(entry: ModelEntry, state: AbstractState) -> list[tuple[str, tuple[str | None, ...], int]]:
    """Return the group, the logical axes and the bytes of each array with names."""
    if entry.partitions:
        paths = {place: ends for ends, place in entry.partition_paths.items()}
        return [
            ("batch" if place == "x" else "params", tuple(names), 1)
            for place, names in entry.partitions.items()
            if place in paths or place == "x"
        ]
    return [
        (array.group, array.logical_axes, array.itemsize * math.prod(array.shape))
        for array in state.arrays
        if array.names is not None and state.names == "logical"
    ]


def _parallel(kept: Mapping[str, int], names_of: Sequence[frozenset[str]]) -> tuple[str, ...]:
    """Return the axes without those whose parameters all have another one of them.

    The width of a head is left out, because each of its parameters also has the number of heads.
    """
    chosen = dict(kept)
    for name in sorted(kept, key=lambda one: -kept[one]):
        others = set(chosen) - {name}
        if all(names & others for names in names_of if name in names) and others:
            del chosen[name]
    return tuple(chosen)


def roles_of(axes: LogicalAxes) -> dict[str, tuple[Role, ...]]:
    """Return the roles of each mesh axis name, in mesh order."""
    batch = (axes.batch,) if axes.batch else ()
    width = (axes.width,) if axes.width else ()
    found: dict[str, list[tuple[str, ...]]] = {name: [] for name in MESH_ORDER}
    if batch:
        found[DATA].append(batch)
    if width:
        found[FSDP].append((*batch, *width))
    if axes.stages:
        found[STAGE].append(axes.stages)
    for name in axes.experts:
        found[EXPERT] += [(name, *batch, *width), (name,)]
    for name in axes.sequence:
        found[CONTEXT] += [(name,), (name, *width)]
    found[TENSOR] += _tensor(axes)
    return {
        axis: tuple(Role(axis, logical) for logical in dict.fromkeys(every))
        for axis, every in found.items()
        if every
    }


def _tensor(axes: LogicalAxes) -> Iterator[tuple[str, ...]]:
    """Yield tensor parallelism of all parallel axes, of all but one, and of two.

    Of all axes also with the sequence if it is free (sequence parallelism, Korthikanti et al. 2022,
    arXiv:2205.05198), and with the width of activations.
    """
    every = axes.parallel
    if not every:
        return
    yield every
    if axes.sequence:
        yield (*every, *axes.sequence)
    if axes.width:
        yield (*every, axes.width)
    for number in {len(every) - 1, min(2, len(every) - 1)} - {0}:
        yield from itertools.combinations(every, number)


def rules_of(
    roles: Sequence[Role], entry: ModelEntry, axes: LogicalAxes, fixed: Sequence[Rule] = ()
) -> tuple[Rule, ...]:
    """Return the rules of mesh axes with these roles, the axes in mesh order.

    An array takes each mesh axis once, and the first rule whose axes are free applies. So the rules of
    experts and parallel axes come first, then those of the batch, the width and the sequence. If a rule has
    several mesh axes, rules with fewer of them follow.

    Args:
      fixed: rules that come first and replace those of their logical axes.
    """
    order = (*axes.stages[:1], *axes.experts, *axes.parallel, axes.batch, axes.width, *axes.sequence)
    replaced = {name for name, _ in fixed}
    every = dict.fromkeys([*filter(None, order), *(n for role in roles for n in role.logical)])
    rules: list[Rule] = list(fixed)
    for name in every:
        wanted = tuple(role.axis for role in roles if name in role.logical)
        if not wanted or name in replaced:
            continue
        if entry.rules_semantics != "linen":
            rules.append((name, wanted))  # without rules that follow: the last one would win
            continue
        for count in range(len(wanted), 0, -1):
            rules += [(name, subset) for subset in itertools.combinations(wanted, count)]
    if entry.rules_semantics != "linen":
        # Without a rule, nnx takes a logical axis for a mesh axis.
        ruled = {name for name, _ in rules}
        rules += [(name, ()) for name in entry.logical_axes if name not in ruled]
    return tuple(rules)
