"""From a Layout and the model's abstract arrays to a Snapshot, at once: nothing is compiled or allocated.

The page redraws this at every change of mesh or rules. The same placement is computed by JAX
itself when the layout is run, and the tests hold the two against each other.
"""

import functools
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

from inspector.compiled.matched_origins import with_origins
from inspector.layout import Layout
from inspector.machines.hardware import Kind
from inspector.records.snapshot import Array, Finding, Mesh, Program, Snapshot, Source, Spec
from inspector.sharding import placement as sharding
from inspector.sharding import rules
from inspector.sharding.abstract import AbstractArray, AbstractState, PartitionedPrograms
from inspector.sharding.rules import nnx
from inspector.text.errors import InvalidInput
from inspector.text.formatting import counted
from inspector.text.program_names import noun

INDIVISIBLE = "indivisible"
NOT_PARTITIONED = "not-propagated"
CAUSES_UNKNOWN = "causes-unknown"  # of the collectives of a recorded program
UNMATCHED = "unmatched-path"


def rejection(snapshot: Snapshot) -> str:
    """Return why JAX rejects the layout, such as `batch of size 8 is not divisible by 16`, or "".

    Figures of such a layout are those of a job that cannot start, so they are not better than others.
    """
    uneven = (finding.message for finding in snapshot.findings if finding.code == INDIVISIBLE)
    refused = (
        f"JAX refuses {noun(program.name)}: {program.sharding_error.message}"
        for program in snapshot.programs
        if program.sharding_error is not None
    )
    return next(itertools.chain(uneven, refused), "")


def with_programs(snapshot: Snapshot, partitioned: PartitionedPrograms) -> Snapshot:
    """Return a plan with its partitioned programs, and with the activations and gradients in them.

    Compiled programs get the partitioned ones next to them.
    """
    if snapshot.source.kind != "plan":
        return with_partitioned(snapshot, partitioned)
    return replace(
        snapshot,
        arrays=(*snapshot.arrays, *partitioned.arrays),
        programs=partitioned.programs,
        findings=(*snapshot.findings, *partitioned.findings),
        partitioned=partitioned_records(partitioned.on_platforms) or None,
    )


def not_partitioned(snapshot: Snapshot, reason: str) -> Snapshot:
    """Return a plan with a note why its programs cannot be partitioned, or compiled programs as they are."""
    if snapshot.source.kind != "plan":
        return snapshot
    return replace(snapshot, findings=(*snapshot.findings, Finding("note", NOT_PARTITIONED, reason)))


def with_partitioned(compiled: Snapshot, partitioned: PartitionedPrograms) -> Snapshot:
    """Return a Snapshot of compiled programs with the figures of the partitioned ones in addition.

    Compiled collectives get the origins of the partitioned ones for the same operations.
    """
    compiled_programs = with_origins(compiled.programs, partitioned.programs)
    records = partitioned_records((*partitioned.programs, *partitioned.on_platforms))
    return replace(compiled, programs=compiled_programs, partitioned=records)


def partitioned_records(partitioned: Iterable[Program]) -> tuple[Program, ...]:
    """Return the part of partitioned programs that a Snapshot keeps: figures without origins."""
    return tuple(
        replace(
            program,
            collectives=None
            if program.collectives is None
            else tuple(replace(collective, origins=None) for collective in program.collectives),
            conflicts=None,
        )
        for program in partitioned
    )


def plan(layout: Layout, state: AbstractState) -> Snapshot:
    """The Snapshot of kind `plan`: every array placed by its names and the layout's rules.

    A dimension that its mesh axes do not divide is a finding with code `indivisible`, which has the logical
    axis. The array's shard shape and bytes per device are then unknown.
    """
    mesh = layout.mesh()

    def spec_of(array: AbstractArray) -> Spec:
        spec = _spec(layout, state, array)
        if array.group != "opt_state":
            return spec
        return sharding.on_more_axes(array.shape, spec, layout.optimizer_axes, mesh.sizes)

    arrays = [_place(array, spec_of(array), state, mesh) for array in state.arrays]
    findings = [
        finding for array in arrays if array.shard_shape is None for finding in _indivisible(array, mesh)
    ]
    findings += _unmatched(layout, state)
    return Snapshot(
        source=Source("plan", "plan", now(), dict(state.versions)),
        layout=layout.to_json(),
        mesh=mesh,
        arrays=tuple(arrays),
        programs=state.refused,
        findings=tuple(findings),
    )


def state_key(layout: Layout) -> str:
    """Return text that two layouts share if their models have the same abstract arrays."""
    # A trace depends on the mesh too if parameters name mesh axes, or if the model is the user's own.
    entry = layout.entry
    if entry.has_rules and not entry.own:
        return layout.key("model", "sizes")
    return layout.key("model", "sizes", "mesh", "axes", "axis_types", "rules", "specs", "state_specs")


def merged_by_logical_axis(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings with one instead of many for each logical axis that does not divide arrays.

    A plan reports each array, because each is a reason why the layout cannot run.
    """
    groups: dict[object, list[Finding]] = {}
    for number, finding in enumerate(findings):
        axis = finding.logical_axis if finding.code == INDIVISIBLE else None
        groups.setdefault(number if axis is None else axis, []).append(finding)
    return tuple(
        replace(first, message=f"{first.message}, nor in {counted(len(more), 'more array')}")
        if more
        else first
        for first, *more in groups.values()
    )


def programs_key(layout: Layout, platforms: Iterable[Kind] = ()) -> str:
    """Return text that two layouts share if their partitioned programs are the same.

    These depend on the kind of machine too, whose passes follow XLA's partitioner.

    Args:
      platforms: other kinds of machines for which the programs of a layout without a machine are read.
    """
    key = layout.key(
        *("model", "sizes", "mesh", "axes", "axis_types", "rules", "specs", "state_specs"),
        *("unconstrained", "donate", "optimizer_axes"),
    )
    return f"{key} {layout.machine.kind if layout.machine else sorted(platforms)}"


def now() -> str:
    """The present moment in ISO 8601, UTC, whole seconds."""
    return datetime.now(UTC).replace(microsecond=0).isoformat()


def unmatched_paths(planned: Snapshot) -> tuple[Finding, ...]:
    """Return the findings of a plan about arrays that match no pattern."""
    return tuple(finding for finding in planned.findings if finding.code == UNMATCHED)


def _unmatched(layout: Layout, state: AbstractState) -> Iterator[Finding]:
    """Yield a finding for each array to which `state_specs` give no PartitionSpec."""
    by_code = ", and the model gives it no spec" if layout.entry.other_specs else ""
    for array in state.arrays:
        if array.unmatched:
            instead = "the names of its dimensions decide" if array.names else "it is replicated"
            yield Finding(
                level="warning",
                code=UNMATCHED,
                array=array.path,
                message=f"{array.path} matches no pattern of state_specs{by_code}: {instead}",
            )


def _spec(layout: Layout, state: AbstractState, array: AbstractArray) -> Spec:
    if array.given_spec is not None:
        for refusal in nnx.refusals(array.given_spec, layout.mesh()):
            raise InvalidInput(f"{array.path}: {refusal}")
        return array.given_spec
    if array.names is None:
        return array.type_spec or (None,) * len(array.shape)
    if state.names == "mesh":
        for refusal in nnx.refusals(array.names, layout.mesh()):
            raise InvalidInput(f"{array.path}: {refusal}")
        return array.names
    names = array.logical_axes
    try:
        if layout.entry.rules_semantics == "linen":
            return rules.partition_spec(names, layout.rules)
        spec = nnx.partition_spec(names, layout.rules)
    except ValueError as error:  # of the names that a person's own model has
        raise InvalidInput(f"{array.path}: {error}") from None
    for refusal in nnx.refusals(spec, layout.mesh()):
        raise InvalidInput(f"{array.path} as nnx reads the rules: {refusal}")
    return spec


def _place(array: AbstractArray, spec: Spec, state: AbstractState, mesh: Mesh) -> Array:
    logical = state.names == "logical" and bool(array.names)
    return _placed(array, spec, sharding.ways_per_dimension(spec, mesh), mesh.size, logical)


@functools.lru_cache(8192)  # a search places each array on many meshes
def _placed(array: AbstractArray, spec: Spec, ways: tuple[int, ...], devices: int, logical: bool) -> Array:
    quotients = [divmod(size, parts) for size, parts in zip(array.shape, ways, strict=True)]
    fits = not any(rest for _, rest in quotients)
    shard_shape = tuple(size for size, _ in quotients) if fits else None
    return Array(
        path=array.path,
        group=array.group,
        shape=array.shape,
        dtype=array.dtype,
        logical_axes=array.logical_axes if logical else None,
        spec=spec,
        pattern=array.pattern,
        memory_kind=array.memory_kind,
        shard_shape=shard_shape,
        bytes=math.prod(array.shape) * array.itemsize,
        bytes_per_device=math.prod(shard_shape) * array.itemsize if shard_shape is not None else None,
        replicas=devices // math.prod(ways) if fits else None,
    )


def _indivisible(array: Array, mesh: Mesh) -> list[Finding]:
    indivisible = []
    for uneven in sharding.indivisible(array.shape or (), array.spec or (), mesh):
        logical_axis = array.logical_axes[uneven.dimension] if array.logical_axes else None
        indivisible.append(
            Finding(
                level="error",
                code=INDIVISIBLE,
                array=array.path,
                message=f"{uneven.text(logical_axis)} in {array.path}",
                logical_axis=logical_axis,
                dimension=uneven.dimension,
            )
        )
    return indivisible
