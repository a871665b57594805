"""What a person's own job has: its live arrays and its compiled programs, as a Snapshot.

Runs inside that job. It needs JAX and NumPy alone, reads shardings and no shard, and moves nothing: what
it says of the devices of other processes, the shardings themselves say.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, get_args

import jax
from jax.sharding import PartitionSpec

from inspector.core import output, snapshot
from inspector.core.errors import InvalidInput, shown
from inspector.core.formatting import counted
from inspector.core.snapshot import Finding, Group, Snapshot, Source
from inspector.producers.captured_arrays import ArrayRecords, Found, main_mesh, some_of
from inspector.producers.captured_program import CapturedProgram
from inspector.producers.leaves import Names, Opened, opened

LEFT_OUT = "left-out"

# A group for all arrays, or what gives it for the path of each.
GroupOf = Group | Callable[[str], Group]

_GROUPS: tuple[str, ...] = get_args(Group)
_STATE_GROUPS = ("params", "opt_state")
# Packages that decide what is in a job's arrays and programs, as far as the job has them.
_PACKAGES = ("jax", "jaxlib", "flax", "optax", "equinox", "numpy")


def capture(
    state: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    mesh: Any = None,
    logical_axes: Any = None,
    group: GroupOf | None = None,
    programs: Mapping[str, Any] | None = None,
) -> Snapshot:
    """Write a Snapshot of every array of a pytree, and give it back.

    `state` may hold `jax.Array`s and `ShapeDtypeStruct`s, boxed by Flax or not, in nnx modules, variables
    and states, registered classes, Optax states, dicts. Other leaves are left out, and a finding says so.
    Call it in every process of the job; process 0 writes the file. Nothing is gathered, moved or waited for.

    Args:
      path: the file to write, whole or not at all; None writes nothing.
      mesh: the mesh that specs are told on; the one of most arrays if None. An array on another mesh, or
        whose sharding is no NamedSharding, has its shards told one by one.
      logical_axes: a pytree of the same paths, each a tuple of names; in place of what boxes say.
      group: `params`, `opt_state`, `batch`, … for all arrays, or a function of the path; by default the
        first part of the path that is `params` or `opt_state`, else what an nnx variable is.
      programs: compiled programs by name, as for `capture_compiled`, to keep with the arrays.

    Raises:
      InvalidInput: the file cannot be written, or an argument is not of the kind above.
    """
    leaves = _leaves(state)
    arrays = [leaf for leaf in leaves if _is_array(leaf.value)]
    others = [leaf for leaf in leaves if not _is_array(leaf.value)]
    compiled = [CapturedProgram(name, one) for name, one in (programs or {}).items()]
    shardings = [_sharding(leaf.value) for leaf in arrays]
    shardings += [sharding for one in compiled for sharding in one.shardings()]
    chosen = main_mesh(shardings, mesh)
    axis_names = () if chosen is None else tuple(chosen.axis_names)
    named = None if logical_axes is None else _names_by_path(logical_axes, arrays)
    found = []
    for leaf, array_path in zip(
        arrays, _unique(leaf.path or "array" for leaf in arrays), strict=True
    ):
        _refuse_traced(leaf.value, array_path)
        names = _logical(leaf, axis_names) if named is None else named.get(leaf.path)
        found.append(
            Found(
                path=array_path,
                group=_group(leaf, array_path, group),
                shape=tuple(leaf.value.shape),
                dtype=leaf.value.dtype,
                sharding=_sharding(leaf.value),
                logical_axes=names,
                box=leaf.box,
                alive=leaf.value if isinstance(leaf.value, jax.Array) else None,
            )
        )
    return _finish(chosen, found, compiled, path, tuple(_left_out(others)))


def capture_compiled(
    compiled: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    name: str = "program",
    mesh: Any = None,
) -> Snapshot:
    """Write a Snapshot of compiled programs: their inputs and outputs, collectives, work and memory.

    `compiled` is what `jitted.lower(...).compile()` gives, called `name`, or several of them by name.
    Inputs are called by their place among the arguments (`program/input/0/…`), or by their keyword.

    Raises:
      InvalidInput: the file cannot be written, or something given is not a compiled program.
    """
    several = compiled if isinstance(compiled, Mapping) else {name: compiled}
    programs = [CapturedProgram(str(key), one) for key, one in several.items()]
    chosen = main_mesh([sharding for one in programs for sharding in one.shardings()], mesh)
    axis_names = () if chosen is None else tuple(chosen.axis_names)
    found = [
        Found(
            path=value.path,
            group=_group(value.leaf, value.leaf.path, None, "output" if value.output else "other"),
            shape=tuple(value.leaf.value.shape),
            dtype=value.leaf.value.dtype,
            sharding=value.sharding,
            logical_axes=_logical(value.leaf, axis_names),
            box=value.leaf.box,
            program=program.name,
        )
        for program in programs
        for value in program.values()
        if value.used
    ]
    return _finish(chosen, found, programs, path)


def _finish(
    mesh: Any,
    found: Iterable[Found],
    programs: Iterable[CapturedProgram],
    path: str | os.PathLike[str] | None,
    findings: tuple[Finding, ...] = (),
) -> Snapshot:
    writes = path is not None and jax.process_index() == 0
    if writes:
        output.refuse_unwritable(path)
    records = ArrayRecords(mesh)
    arrays = tuple(records.record(one) for one in found)
    made = Snapshot(
        source=Source(
            "capture",
            None,
            datetime.now(UTC).replace(microsecond=0).isoformat(),
            _versions(),
            processes=jax.process_count(),
        ),
        layout=None,
        mesh=records.mesh,
        arrays=arrays,
        programs=tuple(program.record(mesh, records.mesh) for program in programs),
        findings=(*records.findings(), *findings),
    )
    if writes:
        snapshot.write(made, path)
    return made


def _leaves(state: Any) -> list[Opened]:
    try:
        return list(opened(state))
    except (ValueError, TypeError) as error:  # such as a dict whose keys have no order
        cause = " ".join(f"{error.__cause__ or error}".split())
        raise InvalidInput(f"the state cannot be read as a pytree: {cause[:200]}") from error


def _is_array(value: Any) -> bool:
    return isinstance(value, (jax.Array, jax.ShapeDtypeStruct))


def _sharding(value: Any) -> Any:
    # A traced value has none that could be told, and is refused in a moment.
    return None if isinstance(value, jax.core.Tracer) else getattr(value, "sharding", None)


def _refuse_traced(value: Any, path: str) -> None:
    if isinstance(value, jax.core.Tracer):
        raise InvalidInput(
            f"{shown(path, 200)} is a traced value and has no devices yet: "
            "call capture outside jax.jit"
        )


def _group(leaf: Opened, path: str, asked: GroupOf | None, otherwise: Group = "other") -> Group:
    if asked is None:
        known = next((part for part in path.split("/") if part in _STATE_GROUPS), leaf.group)
        return known or otherwise
    chosen = asked(path) if callable(asked) else asked
    if chosen not in _GROUPS:
        raise InvalidInput(f"group is {shown(chosen)}, but must be one of {', '.join(_GROUPS)}")
    return chosen


def _logical(leaf: Opened, axis_names: tuple[str, ...]) -> Names | None:
    """The names of a box where they are logical axes: it says so, or not all are axes of the mesh."""
    names = leaf.names
    if names is None or not all(name is None or isinstance(name, str) for name in names):
        return None
    if leaf.logical or any(name is not None and name not in axis_names for name in names):
        return names
    return None


def _names_by_path(tree: Any, arrays: list[Opened]) -> dict[str, Names]:
    """The names of a tree by path.

    Raises:
      InvalidInput: they are no names, there is no such array, or it has another rank.
    """
    ranks = {leaf.path: len(leaf.value.shape) for leaf in arrays}
    found = {}
    for key_path, names in jax.tree_util.tree_leaves_with_path(tree, is_leaf=_is_names):
        path = jax.tree_util.keystr(key_path, simple=True, separator="/")
        if not _is_names(names):
            raise InvalidInput(
                f"logical_axes has {shown(str(names))} at {shown(path, 200)}, but must have a tuple "
                "with a name or None for each dimension"
            )
        if path not in ranks:
            raise InvalidInput(f"logical_axes has {shown(path, 200)}, but there is no such array")
        if len(names) != ranks[path]:
            raise InvalidInput(
                f"logical_axes has {counted(len(names), 'name')} at {shown(path, 200)}, but must have "
                f"one for each of {counted(ranks[path], 'dimension')}"
            )
        found[path] = tuple(names)
    return found


def _is_names(node: Any) -> bool:
    # A named tuple is a node of an optimizer's state.
    if not isinstance(node, (tuple, PartitionSpec)) or hasattr(node, "_fields"):
        return False
    return all(name is None or isinstance(name, str) for name in node)


def _unique(paths: Iterable[str]) -> Iterator[str]:
    """Paths with a number at those that were there before: one key may be `a/b`, too."""
    seen: set[str] = set()
    for path in paths:
        name, number = path, 1
        while name in seen:
            number += 1
            name = f"{path} ({number})"
        seen.add(name)
        yield name


def _left_out(leaves: list[Opened]) -> Iterator[Finding]:
    if leaves:
        kinds = ", ".join(sorted({type(leaf.value).__name__ for leaf in leaves}))
        words = (
            "leaf is no jax.Array and was"
            if len(leaves) == 1
            else "leaves are no jax.Array and were"
        )
        paths = some_of([leaf.path or "the whole" for leaf in leaves])
        yield Finding("note", LEFT_OUT, f"{len(leaves)} {words} left out ({kinds}): {paths}")


def _versions() -> dict[str, str]:
    loaded = {name: sys.modules.get(name) for name in _PACKAGES}
    return {
        name: str(module.__version__)
        for name, module in loaded.items()
        if hasattr(module, "__version__")
    }
