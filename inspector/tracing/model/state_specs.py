"""The PartitionSpec that `Model.state_specs` and the rows of a layout give each array of a state."""

import contextlib
import math
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from inspector.model import PyTree
from inspector.model.state_specs import spec_of, table_of
from inspector.records.snapshot import Array, Spec
from inspector.sharding import state_specs as rows_of_layout
from inspector.sharding.memory_kinds import PINNED, UNPINNED
from inspector.sharding.placement import jax_entry, on_more_axes
from inspector.sharding.state_specs import SpecRow
from inspector.text.errors import InvalidInput, shown
from inspector.tracing.leaves import Leaf, leaves_of, unboxed
from inspector.tracing.leaves import spec_of as spec_of_jax
from inspector.tracing.model.describe import own_code

SECONDS = 2.0  # for all paths of a model; an ordinary table takes milliseconds


@dataclass(frozen=True)
class Given:
    """The spec of one array.

    Attributes:
      pattern: the pattern that gave it. None for the code of the model, or a scalar.
      memory_kind: the memory in which the model's code keeps the array, as JAX names it. None for the
        memory of the device.
    """

    spec: Spec
    pattern: str | None = None
    memory_kind: str | None = None


def given_specs(
    state: PyTree,
    of_model: PyTree,
    rows: Sequence[SpecRow],
    mesh: Mesh | AbstractMesh,
    model: str = "the model",
) -> dict[str, Given | None]:
    """Return the spec of each array of an abstract state by path, None if nothing gives one.

    Args:
      of_model: the field `state_specs` of the model. If it is None, the result is empty.
      rows: rows of the layout, which come first.
      model: the name of the model in errors.

    Raises:
      InvalidInput: a spec does not fit its array or the mesh, or the model's function fails.
    """
    if of_model is None:
        return {}
    by_model = _of_model(state, of_model, mesh, model)
    sizes = dict(mesh.shape)
    specs: dict[str, Given | None] = {}
    with _limited_time():
        for leaf in unboxed(state):
            path, shape = leaf.path, tuple(leaf.value.shape)
            if math.prod(shape) == 1:
                specs[path] = by_model(path, shape) or Given((None,) * len(shape))
                continue
            number = rows_of_layout.row_for(rows, path)
            if number is None:
                specs[path] = by_model(path, shape)
                continue
            theirs = None
            # The row replaces a spec that is not valid, too.
            with contextlib.suppress(InvalidInput):
                theirs = by_model(path, shape)
            row, itemsize = rows[number], leaf.value.dtype.itemsize
            spec = rows_of_layout.spec_of(row, path, shape, itemsize, sizes)
            specs[path] = Given(spec, row.pattern, None if theirs is None else theirs.memory_kind)
    return specs


def shardings_by_path(
    state: PyTree,
    given: Mapping[str, Given | None],
    mesh: Mesh | AbstractMesh,
    otherwise: Callable[[Leaf], NamedSharding],
) -> PyTree:
    """Return the pytree of shardings with the given specs. `otherwise` returns that of another leaf."""
    shardings = []
    for leaf in unboxed(state):
        spec = given.get(leaf.path)
        if spec is None:
            shardings.append(otherwise(leaf))
        else:
            partition_spec = PartitionSpec(*map(jax_entry, spec.spec))
            shardings.append(NamedSharding(mesh, partition_spec, memory_kind=spec.memory_kind))
    return jax.tree.unflatten(jax.tree.structure(state), shardings)


def with_optimizer_axes(
    state: PyTree, shardings: PyTree, axes: Sequence[str], mesh: Mesh | AbstractMesh
) -> PyTree:
    """Return the pytree of shardings of a state, with more mesh axes for the optimizer state.

    Args:
      state: the abstract state, with the boxes of its leaves.
    """
    given, structure = jax.tree.flatten(shardings)
    extended = []
    for leaf, sharding in zip(leaves_of(state), given, strict=True):
        if leaf.group == "opt_state":
            shape = tuple(leaf.value.shape)
            spec = on_more_axes(shape, spec_of_jax(sharding.spec, len(shape)), axes, dict(mesh.shape))
            sharding = NamedSharding(
                mesh, PartitionSpec(*map(jax_entry, spec)), memory_kind=sharding.memory_kind
            )
        extended.append(sharding)
    return jax.tree.unflatten(structure, extended)


def with_patterns(arrays: Iterable[Array], given: Mapping[str, Given | None]) -> tuple[Array, ...]:
    """Return the arrays, each with the pattern that gave its spec."""
    patterns = {path: spec.pattern for path, spec in given.items() if spec is not None}
    return tuple(
        replace(array, pattern=patterns[array.path]) if patterns.get(array.path) else array
        for array in arrays
    )


def _of_model(
    state: PyTree, specs: PyTree, mesh: Mesh | AbstractMesh, model: str
) -> Callable[[str, tuple[int, ...]], Given | None]:
    """Return a function from a path and a shape to the spec that the model's `state_specs` give it.

    It returns None for a leaf without a spec, and for every leaf if `specs` is a table. It raises
    InvalidInput if a spec has another type.
    """
    if table_of(specs) is not None:
        return lambda path, shape: None
    listed: dict[str, Any] = {}
    if not callable(specs):
        with own_code(model):
            listed = _broadcast(specs, state)

    def given(path: str, shape: tuple[int, ...]) -> Given | None:
        with own_code(model):
            written = listed[path] if listed else specs(path, shape, mesh)
        if written is None:
            return None
        spec = spec_of(written)
        if spec is None:
            raise InvalidInput(
                f"{model}: state_specs gives {path} {shown(str(written))}, but must give a "
                "PartitionSpec, a NamedSharding or None"
            )
        kind = getattr(written, "memory_kind", None)
        return Given(
            rows_of_layout.padded(spec, path, len(shape), model),
            memory_kind=kind if kind in (PINNED, UNPINNED) else None,
        )

    return given


def _broadcast(specs: PyTree, state: PyTree) -> dict[str, Any]:
    """Return the leaf of a prefix pytree for each path of the state."""

    def is_leaf(node: object) -> bool:
        return node is None or isinstance(node, (PartitionSpec, NamedSharding))

    broadcast = jax.tree_util.tree_broadcast(specs, state, is_leaf=is_leaf)
    listed = jax.tree.leaves(broadcast, is_leaf=is_leaf)
    paths = [leaf.path for leaf in unboxed(state)]
    return dict(zip(paths, listed, strict=True))


@contextlib.contextmanager
def _limited_time() -> Iterator[None]:
    """Stop patterns that backtrack for too long. It has an effect in the main thread only.

    Raises:
      InvalidInput: the time is over.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise InvalidInput(
            f"state_specs: the patterns took longer than {SECONDS:g} seconds: write simpler ones"
        )

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
