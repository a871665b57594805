"""Facts about lowered and compiled programs that JAX keeps in private attributes.

The functions take JAX's `MeshComputation` (lowered) and `MeshExecutable` (compiled), which every `jax.jit`
makes. The recorder and the capture call them.

Public replacement: `jax.stages.Lowered` and `jax.stages.Compiled` have the shardings and the donated
arguments, but JAX makes these objects only if a program is compiled ahead of time.
Tried on JAX 0.10.2 and 0.12.0.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import jax


def name_of(lowered: Any) -> str:
    """Return the name of a lowered function, such as `jit(step)`."""
    return lowered._name


def devices_of(lowered: Any) -> tuple[Any, ...]:
    """Return the devices of a lowered program, in order; empty if its arguments and its code name none."""
    return tuple(lowered._device_list or ())


def donated(lowered: Any) -> Sequence[bool]:
    """Return for each argument that the program uses whether it is donated."""
    return lowered._donated_invars


def input_shardings(compiled: Any) -> Sequence[Any]:
    """Return the sharding of each argument that a compiled program uses."""
    return compiled._in_shardings


def output_shardings(compiled: Any) -> Sequence[Any]:
    """Return the sharding of each result of a compiled program."""
    return compiled._out_shardings


def results(compiled: Any) -> Any:
    """Return shape and dtype of each result of a `jax.stages.Compiled`, in its pytree.

    Its own `out_info` raises for a program with ordered effects, such as an ordered `io_callback`: the
    tokens between the effects have no layout.
    """
    try:
        return compiled.out_info
    except AssertionError:
        avals = compiled._executable.out_avals
        return compiled.out_tree.unflatten([jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in avals])


def is_chosen(sharding: Any) -> bool:
    """Return whether an argument or result has no requested sharding, so that the compiler chooses one."""
    return type(sharding).__name__ == "UnspecifiedValue"


def used_arguments(compiled: Any) -> Collection[int]:
    """Return the places of the arguments that a compiled program uses; XLA gets no others."""
    return compiled._kept_var_idx
