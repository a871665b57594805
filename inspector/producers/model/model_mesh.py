"""The mesh axes that a user's model names, and whether its code runs under `jax.set_mesh`.

Found by abstract traces on mesh axes of size 1. Nothing is compiled.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
from flax import linen as nn
from jax.sharding import AbstractMesh, AxisType

from inspector.core.rules import Rule
from inspector.model import Model, PyTree
from inspector.producers.arrays.leaves import leaves_of, nnx_rules, without_eager_sharding
from inspector.producers.model.traceable import batch_function

# JAX's error for a PartitionSpec with a name that the mesh lacks.
_UNKNOWN_AXIS = re.compile(r"Resource axis: (\w+) of ")
_MOST_AXES = 16
_NO_AXES = ("unnamed",)


@dataclass(frozen=True)
class MeshUse:
    """The needs of a model for a mesh.

    Attributes:
      axes: the mesh axes that its rules, names and code have, in order of first use.
      set_mesh: False if its functions fail under `jax.set_mesh` but not without.
      state: the abstract train state; None if `init` fails both ways.
    """

    axes: tuple[str, ...]
    set_mesh: bool
    state: PyTree


def mesh_use(model: Model, rules: Iterable[Rule]) -> MeshUse:
    """Return the needs of the model for a mesh. Errors of its code are not reported here."""
    rules = tuple(rules)
    axes = [axis for _, together in rules for axis in together]
    if model.names == "mesh":
        axes += _flat((*model.batch_axes.values(), model.output_axes or ()))
    state = _tried(model, rules, None, False)
    boxes = [] if state is None else _flat(leaf.names or () for leaf in leaves_of(state))
    if model.names == "mesh":
        axes += boxes
    named = tuple(dict.fromkeys(axes))
    axes = list(named)
    while len(axes) < _MOST_AXES:
        try:
            under_mesh = _trace(model, rules, axes or _NO_AXES, True)
            return MeshUse(tuple(axes), True, under_mesh if state is None else state)
        except (Exception, SystemExit) as error:
            unknown = _UNKNOWN_AXIS.search(str(error))
            # A box with logical axes may be taken for a PartitionSpec.
            if unknown is None or unknown[1] in {*axes, *boxes}:
                break
            axes.append(unknown[1])
    if _tried(model, rules, None, True) is not None:
        return MeshUse(named, False, state)
    return MeshUse(tuple(axes), True, state or _tried(model, rules, axes or _NO_AXES, False))


def _tried(model: Model, rules: tuple[Rule, ...], axes: Iterable[str] | None, all_programs: bool) -> PyTree:
    """Return the abstract state, or None if a function fails."""
    try:
        return _trace(model, rules, axes, all_programs)
    except (Exception, SystemExit):
        return None


def _trace(model: Model, rules: tuple[Rule, ...], axes: Iterable[str] | None, all_programs: bool) -> PyTree:
    """Trace init, and the other programs if asked, and return the abstract state.

    Without `axes`, no mesh is set.
    """
    key = jax.eval_shape(lambda: jax.random.key(0))
    programs = (model.step, model.apply, *model.programs.values())
    with _context(rules, axes):
        batch = jax.eval_shape(batch_function(model), key)
        # New function objects make JAX trace again, because a cached trace may have another mesh.
        state = jax.eval_shape(lambda *arguments: model.init(*arguments), key, batch)
        for function in programs if all_programs else ():
            if function is not None:
                jax.eval_shape(lambda *arguments, of=function: of(*arguments), state, batch)
    return state


@contextlib.contextmanager
def _context(rules: tuple[Rule, ...], axes: Iterable[str] | None) -> Iterator[None]:
    names = None if axes is None else tuple(axes)
    mesh = None
    if names is not None:
        # By default, JAX 0.12 makes the axes explicit.
        mesh = AbstractMesh((1,) * len(names), names, axis_types=(AxisType.Auto,) * len(names))
    given = tuple((name, tuple(together) or None) for name, together in rules)
    with (
        contextlib.nullcontext() if mesh is None else jax.sharding.use_abstract_mesh(mesh),
        nn.logical_axis_rules(given),
        nnx_rules(given),
        without_eager_sharding(),
    ):
        yield


def _flat(names: Iterable[Iterable[Any]]) -> list[str]:
    """Return the axis names in the names of dimensions, of which each is a name, several or None."""
    entries = (entry for name in names for entry in name)
    together = ((entry,) if isinstance(entry, str) else entry or () for entry in entries)
    return [name for group in together for name in group if isinstance(name, str)]
