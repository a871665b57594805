"""Move a lowered program to other devices. Its module has numbers for devices and names for mesh axes.

Public replacement: none. A `jax.stages.Lowered` compiles for the devices that it was lowered for.
`jax.extend.sharding.GSPMDSharding` is public, but its devices and its HLO sharding are private attributes.
Tried on JAX 0.10.2 and 0.12.0.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from jax import stages
from jax._src import pjit
from jax._src.interpreters import batching, pxla
from jax._src.lib import xla_client
from jax.extend.sharding import GSPMDSharding
from jax.sharding import NamedSharding, PartitionSpec

# Sharding constraints inside of `jax.vmap`, on a mesh whose axes have size 1.
#
# JAX adds the mapped dimension to the PartitionSpec of such a constraint. It leaves out this step if the
# constraint replicates, as it does on a mesh of one device, and then overwrites a dimension of the spec. In a
# template the spec has the names of logical axes, so it must be whole.
#
# Public replacement: none. Tried on JAX 0.10.2 and 0.12.0.


@contextlib.contextmanager
def with_whole_specs() -> Iterator[None]:
    """Add the mapped dimension to the spec of each constraint that is traced in this context."""
    rules = batching.fancy_primitive_batchers
    of_jax = rules[pjit.sharding_constraint_p]

    def batched(axis_data: Any, values: Any, dimensions: Any, **parameters: Any) -> Any:
        (value,), (mapped,) = values, dimensions
        sharding = parameters["sharding"]
        is_plain = isinstance(sharding, NamedSharding) and parameters["layout"] is None
        if mapped is None or not is_plain or axis_data.spmd_name is not None:
            return of_jax(axis_data, values, dimensions, **parameters)
        spec = [*sharding.spec, *(None for _ in range(value.ndim - 1 - len(sharding.spec)))]
        spec.insert(mapped, PartitionSpec.UNCONSTRAINED)
        free = {number + (mapped <= number) for number in parameters["unconstrained_dims"]}
        parameters |= {
            "sharding": NamedSharding(sharding.mesh, PartitionSpec(*spec)),
            "unconstrained_dims": frozenset({mapped, *free}),
        }
        return pjit.sharding_constraint_p.bind(value, **parameters), mapped

    rules[pjit.sharding_constraint_p] = batched
    try:
        yield
    finally:
        rules[pjit.sharding_constraint_p] = of_jax


# Replace the function in which JAX lowers a jitted function, while a context is active.
#
# Whatever wraps `jax.jit` ends in this function. In a program that is recorded, `compile_hook` replaces it.
#
# Public replacement: none. Tried on JAX 0.10.2 and 0.12.0.


@contextlib.contextmanager
def replaced(make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Call what `make` returns for the original function, `lower(arguments, jaxpr=…, **parameters)`."""
    original = pjit._resolve_and_lower
    pjit._resolve_and_lower = make(original)
    try:
        yield
    finally:
        pjit._resolve_and_lower = original


def runs_now(caller: FrameType) -> bool:
    """Return whether JAX lowers a function to run it now, and not ahead of time.

    Args:
      caller: the frame that calls the replaced function.
    """
    return caller.f_code is pjit._pjit_call_impl_python.__code__


def use_debug_info(traced: Any, of: Any) -> None:
    """Give a traced function the names and the source of another one."""
    getattr(traced, "jaxpr", traced)._debug_info = getattr(of, "jaxpr", of).debug_info


def devices_of(lowered: stages.Lowered) -> tuple[Any, ...]:
    """Return the devices that the code of a lowered program names, in order; empty if it names none."""
    computation: Any = lowered._lowering
    return tuple(computation._device_list or ())


def moved(lowered: stages.Lowered, devices: Sequence[Any], move: Callable[[Any], Any]) -> stages.Lowered:
    """Return the lowered program for other devices.

    Args:
      devices: equal in number to those of the program, in the same order.
      move: takes a sharding of the program and returns it on the new devices.
    """
    computation: Any = lowered._lowering
    arguments = computation.compile_args
    kept = {
        name: tuple(move(sharding) for sharding in arguments[name] or ())
        for name in ("in_shardings", "out_shardings", "intermediate_shardings")
    }
    mesh_computation = pxla.MeshComputation(
        computation._name,
        computation._hlo,
        computation.const_args,
        computation._donated_invars,
        computation._platforms,
        computation._compiler_options_kvs,
        tuple(devices),
        **(arguments | kept | {"backend": devices[0].client}),
    )
    return stages.Lowered(mesh_computation, lowered.args_info, lowered.out_tree)


def moved_gspmd(sharding: GSPMDSharding, new: dict[Any, Any]) -> GSPMDSharding:
    """Return a sharding without a mesh on other devices. `new` has the new device of each old one."""
    devices = xla_client.DeviceList(tuple(new[device] for device in sharding._device_assignment))
    return GSPMDSharding(devices, sharding._hlo_sharding, memory_kind=sharding.memory_kind)
