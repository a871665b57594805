"""A Layout's model, built, and its names as JAX shardings on a mesh of real devices."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from inspector import snapshot
from inspector.layout import Layout
from inspector.model import Model
from inspector.snapshot import Spec


def build_model(layout: Layout) -> Model:
    """Build the layout's model at its sizes."""
    module_name, function_name = layout.entry.build.split(":")
    build = getattr(importlib.import_module(module_name), function_name)
    options: dict[str, Any] = dict(layout.sizes)
    if layout.unconstrained:
        options["unconstrained"] = layout.unconstrained
    if layout.entry.has_rules:
        return build(**options)
    partitions = {
        place: tuple(jax_entry(axes) for axes in spec) for place, spec in layout.specs.items()
    }
    return build(**options, partitions=partitions)


def make_mesh(layout: Layout) -> Mesh:
    """The layout's mesh of the devices of all processes, in row-major order."""
    devices = np.array(jax.devices()[: layout.devices]).reshape(layout.mesh_shape)
    return Mesh(devices, layout.axis_names)


def mesh_record(mesh: Mesh) -> snapshot.Mesh:
    """A mesh of live devices as a Snapshot has it."""
    return snapshot.Mesh(
        axes=tuple(
            snapshot.MeshAxis(name, size, kind.name.lower())
            for (name, size), kind in zip(mesh.shape.items(), mesh.axis_types, strict=True)
        ),
        devices=tuple(device.id for device in mesh.devices.flat),
        processes=tuple(device.process_index for device in mesh.devices.flat),
        device_kind=mesh.devices.flat[0].device_kind,
    )


@contextlib.contextmanager
def tracing(layout: Layout, mesh: Mesh) -> Iterator[None]:
    """Within it, models find the mesh and the rules that their constraints refer to."""
    with jax.set_mesh(mesh), nn.logical_axis_rules(linen_rules(layout)):
        yield


def linen_rules(layout: Layout) -> tuple[tuple[str, Any], ...]:
    """The layout's rules as Flax Linen takes them."""
    return tuple((name, jax_entry(axes)) for name, axes in layout.rules)


def state_shardings(abstract_state: Any, model: Model, layout: Layout, mesh: Mesh) -> Any:
    """The sharding of every leaf of the state, from the boxes around its abstract leaves."""
    if model.names == "mesh":
        return nn.get_sharding(abstract_state, mesh)
    specs = nn.get_partition_spec(abstract_state)
    return nn.logical_to_mesh_sharding(specs, mesh, linen_rules(layout))


def named_sharding(
    axes: tuple[Any, ...], model: Model, layout: Layout, mesh: Mesh
) -> NamedSharding:
    """The sharding of the batch or the output from the names of its dimensions."""
    if model.names == "logical":
        return NamedSharding(mesh, nn.logical_to_mesh_axes(axes, linen_rules(layout)))
    return NamedSharding(mesh, PartitionSpec(*axes))


def jax_entry(axes: tuple[str, ...] | None) -> str | tuple[str, ...] | None:
    """One dimension of a PartitionSpec as JAX prints it: None, one name, or a tuple of them."""
    if not axes:
        return None
    return axes[0] if len(axes) == 1 else axes


def spec_of(partition_spec: PartitionSpec, rank: int) -> Spec:
    """A PartitionSpec as a Snapshot has it: one entry a dimension, a tuple of names or None."""
    entries = tuple(
        (entry,) if isinstance(entry, str) else tuple(entry) if entry else None
        for entry in partition_spec
    )
    return entries + (None,) * (rank - len(entries))
