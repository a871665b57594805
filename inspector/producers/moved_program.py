"""Lower a program whose code names the devices of its own mesh, and move it to the devices of a target.

JAX refuses a program with two sets of devices. Here the arguments have the layout's mesh without devices, so
the code's own mesh gives the devices while the program is lowered. The module has numbers for devices and
names for mesh axes, so it is the same for any devices in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax._src import stages
from jax._src.interpreters import pxla
from jax._src.lib import xla_client as xc
from jax._src.sharding_impls import GSPMDSharding
from jax.sharding import Mesh, NamedSharding, Sharding

from inspector.producers.build import Signature
from inspector.producers.placeholder_devices import TRACED_DEVICE

# How JAX's error for two sets of devices begins.
MISMATCH = "Received incompatible devices"


def lower_for(signature: Signature, devices: Sequence[Any], platform: str) -> stages.Lowered:
    """Return the lowered program for devices, in the order of the layout's mesh.

    Args:
      platform: the platform of the target in JAX's words, such as tpu.
    Raises:
      ValueError: JAX cannot lower it, or its code names another number of devices.
    """
    lowered = (
        _without_devices(signature)
        .jitted()
        .trace(*signature.arguments)
        .lower(lowering_platforms=(platform,))
    )
    computation = lowered._lowering
    named = tuple(computation._device_list or devices)
    if len(named) != len(devices):
        raise ValueError(
            f"the code of {signature.name} names {len(named)} devices, but the mesh has {len(devices)}"
        )
    new = dict(zip(named, devices, strict=True))
    arguments = computation.compile_args
    kept = {
        name: tuple(_moved(one, new) for one in arguments[name] or ())
        for name in ("in_shardings", "out_shardings", "intermediate_shardings")
    }
    made = pxla.MeshComputation(
        computation._name,
        computation._hlo,
        computation.const_args,
        computation._donated_invars,
        computation._platforms,
        computation._compiler_options_kvs,
        tuple(devices),
        **(arguments | kept | {"backend": devices[0].client}),
    )
    return stages.Lowered(made, lowered.args_info, lowered.out_tree)


def on_devices(tree: Any, devices: Sequence[Any]) -> Any:
    """Return a tree of shardings whose meshes have these devices, in the order of the mesh."""

    def placed(sharding: Any) -> Any:
        if not isinstance(sharding, NamedSharding):
            return sharding
        shape = sharding.mesh.axis_sizes
        mesh = Mesh(
            np.array(devices, dtype=object).reshape(shape),
            sharding.mesh.axis_names,
            axis_types=sharding.mesh.axis_types,
        )
        return NamedSharding(mesh, sharding.spec, memory_kind=sharding.memory_kind)

    return jax.tree.map(placed, tree, is_leaf=lambda leaf: isinstance(leaf, Sharding))


def _without_devices(signature: Signature) -> Signature:
    def abstract(sharding: Any) -> Any:
        if not isinstance(sharding, NamedSharding):
            return sharding
        mesh = sharding.mesh.abstract_mesh.update(abstract_device=TRACED_DEVICE)
        return NamedSharding(mesh, sharding.spec, memory_kind=sharding.memory_kind)

    def each(tree: Any) -> Any:
        return jax.tree.map(abstract, tree, is_leaf=lambda leaf: isinstance(leaf, Sharding))

    return replace(
        signature,
        inputs={name: (given, each(tree)) for name, (given, tree) in signature.inputs.items()},
        outputs={name: each(tree) for name, tree in signature.outputs.items()},
    )


def _moved(sharding: Any, new: dict[Any, Any]) -> Any:
    """Return a sharding on the new devices. One that names no devices is returned unchanged."""
    if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh):
        old = sharding.mesh
        placed = np.array([new[one] for one in old.devices.flat], dtype=object)
        mesh = Mesh(placed.reshape(old.devices.shape), old.axis_names, axis_types=old.axis_types)
        return NamedSharding(mesh, sharding.spec, memory_kind=sharding.memory_kind)
    if isinstance(sharding, GSPMDSharding):
        devices = xc.DeviceList(tuple(new[one] for one in sharding._device_assignment))
        return GSPMDSharding(devices, sharding._hlo_sharding, memory_kind=sharding.memory_kind)
    return sharding
