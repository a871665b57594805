"""Lower a program whose code names the devices of its own mesh, and move it to the devices of a target.

JAX refuses a program with two sets of devices. Here the arguments have the layout's mesh without devices, so
the code's own mesh gives the devices while the program is lowered. The module has numbers for devices and
names for mesh axes, so it is the same for any devices in the same order.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax import stages
from jax.extend.sharding import GSPMDSharding
from jax.sharding import Mesh, NamedSharding, Sharding

from inspector.model import PyTree
from inspector.producers.jax_internals import moved_lowering
from inspector.producers.model.build import Signature
from inspector.producers.model.placeholder_devices import TRACED_DEVICE

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
        _without_devices(signature).jitted().trace(*signature.arguments).lower(lowering_platforms=(platform,))
    )
    named = moved_lowering.devices_of(lowered) or tuple(devices)
    if len(named) != len(devices):
        raise ValueError(
            f"the code of {signature.name} names {len(named)} devices, but the mesh has {len(devices)}"
        )
    new = dict(zip(named, devices, strict=True))
    return moved_lowering.moved(lowered, devices, lambda sharding: _moved(sharding, new))


def on_devices(tree: PyTree, devices: Sequence[Any]) -> PyTree:
    """Return a tree of shardings whose meshes have these devices, in the order of the mesh."""

    def placed(sharding: Sharding) -> Sharding:
        if not isinstance(sharding, NamedSharding):
            return sharding
        mesh = Mesh(
            np.array(devices, dtype=object).reshape(sharding.mesh.axis_sizes),
            sharding.mesh.axis_names,
            axis_types=sharding.mesh.axis_types,
        )
        return NamedSharding(mesh, sharding.spec, memory_kind=sharding.memory_kind)

    return jax.tree.map(placed, tree, is_leaf=lambda leaf: isinstance(leaf, Sharding))


def _without_devices(signature: Signature) -> Signature:
    def abstract(sharding: Sharding) -> Sharding:
        if not isinstance(sharding, NamedSharding):
            return sharding
        mesh = sharding.mesh.abstract_mesh.update(abstract_device=TRACED_DEVICE)
        return NamedSharding(mesh, sharding.spec, memory_kind=sharding.memory_kind)

    def bare(tree: PyTree) -> PyTree:
        return jax.tree.map(abstract, tree, is_leaf=lambda leaf: isinstance(leaf, Sharding))

    return replace(
        signature,
        inputs={name: (given, bare(tree)) for name, (given, tree) in signature.inputs.items()},
        outputs={name: bare(tree) for name, tree in signature.outputs.items()},
    )


def _moved(sharding: Sharding, new: dict[Any, Any]) -> Sharding:
    """Return a sharding on the new devices. One that names no devices is returned unchanged."""
    if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh):
        old = sharding.mesh
        placed = np.array([new[device] for device in old.devices.flat], dtype=object)
        mesh = Mesh(placed.reshape(old.devices.shape), old.axis_names, axis_types=old.axis_types)
        return NamedSharding(mesh, sharding.spec, memory_kind=sharding.memory_kind)
    if isinstance(sharding, GSPMDSharding):
        return moved_lowering.moved_gspmd(sharding, new)
    return sharding
