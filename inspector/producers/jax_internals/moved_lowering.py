"""Move a lowered program to other devices. Its module has numbers for devices and names for mesh axes.

Public replacement: none. A `jax.stages.Lowered` compiles for the devices that it was lowered for.
`jax.extend.sharding.GSPMDSharding` is public, but its devices and its HLO sharding are private attributes.
Tried on JAX 0.10.2 and 0.12.0.
"""

from collections.abc import Callable, Sequence
from typing import Any

from jax import stages
from jax._src.interpreters import pxla
from jax._src.lib import xla_client
from jax.extend.sharding import GSPMDSharding


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
