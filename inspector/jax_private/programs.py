"""Facts about lowered and compiled programs that JAX keeps in private attributes.

The functions take JAX's `MeshComputation` (lowered) and `MeshExecutable` (compiled), which every `jax.jit`
makes. The recorder and the capture call them.

Public replacement: `jax.stages.Lowered` and `jax.stages.Compiled` have the shardings and the donated
arguments, but JAX makes these objects only if a program is compiled ahead of time.
Tried on JAX 0.10.2 and 0.12.0.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import jax
from jax.sharding import NamedSharding

from inspector.jax_private import checkpoint_names
from inspector.model import PyTree

if TYPE_CHECKING:
    from jax._src.interpreters.pxla import MeshComputation as MeshComputation
    from jax._src.interpreters.pxla import MeshExecutable as MeshExecutable


def name_of(lowered: MeshComputation) -> str:
    """Return the name of a lowered function, such as `jit(step)`."""
    return lowered._name


def devices_of(lowered: MeshComputation) -> tuple[Any, ...]:
    """Return the devices of a lowered program, in order; empty if its arguments and its code name none."""
    return tuple(lowered._device_list or ())


def donated(lowered: MeshComputation) -> Sequence[bool]:
    """Return for each argument that the program uses whether it is donated."""
    return lowered._donated_invars


def input_shardings(compiled: MeshExecutable) -> Sequence[Any]:
    """Return the sharding of each argument that a compiled program uses."""
    return compiled._in_shardings


def output_shardings(compiled: MeshExecutable) -> Sequence[Any]:
    """Return the sharding of each result of a compiled program."""
    return compiled._out_shardings


def results(compiled: jax.stages.Compiled) -> PyTree:
    """Return shape and dtype of each result of a `jax.stages.Compiled`, in its pytree.

    Its own `out_info` raises for a program with ordered effects, such as an ordered `io_callback`: the
    tokens between the effects have no layout.
    """
    try:
        return compiled.out_info
    except AssertionError:
        executable: Any = compiled._executable
        avals = executable.out_avals
        shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals]
        return jax.tree.unflatten(compiled.out_tree, shapes)


def is_chosen(sharding: object) -> bool:
    """Return whether an argument or result has no requested sharding, so that the compiler chooses one."""
    return type(sharding).__name__ == "UnspecifiedValue"


def is_given(sharding: object) -> bool:
    """Return whether the code gives jit the sharding of a value. Along explicit axes, JAX does it itself."""
    return isinstance(sharding, NamedSharding) and sharding.mesh.are_all_axes_auto


def constraint_of(equation: Any, sharding: Any) -> str | None:
    """Return the line of the constraint that gives a result its sharding; None for any other equation."""
    if equation is None or equation.primitive.name != "sharding_constraint":
        return None
    same = equation.params["sharding"].is_equivalent_to(sharding, equation.outvars[0].aval.ndim)
    return checkpoint_names.line_of(equation) if same else None


def used_arguments(compiled: MeshExecutable) -> Collection[int]:
    """Return the places of the arguments that a compiled program uses; XLA gets no others."""
    return compiled._kept_var_idx
