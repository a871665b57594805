"""Describe a TPU or GPU target to its compiler, and make a mesh of its devices."""

import math
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.experimental import mesh_utils, topologies
from jax.sharding import AxisType, Mesh

from inspector.core import snapshot
from inspector.core.errors import InvalidInput, require_one_of
from inspector.layout import DEVICE_ORDERS
from inspector.machines import targets
from inspector.machines.slices import shape_text
from inspector.machines.targets import GPUS_PER_NODE, Target
from inspector.producers.arrays.records import mesh_record


def devices_of(target: Target) -> list[Any]:
    """Return JAX's devices of a target in the order of `jax.devices()`. They only serve to compile.

    The variables of `targets.environment` must be set before JAX starts.

    Raises:
      InvalidInput: the compiler is not installed, or does not know the target.
    """
    if lacking := targets.missing_compiler(target):
        raise InvalidInput(lacking)
    try:
        if target.slice is None:
            return topologies.get_topology_desc(
                platform="cuda",
                # slices × hosts × GPUs per host
                topology=f"1x{target.hosts}x{min(target.devices, GPUS_PER_NODE)}",
                target_config=targets.gpu_description(target.chip_name),
            ).devices
        slice_ = target.slice
        return topologies.get_topology_desc(
            platform="tpu",
            topology_name=f"{slice_.generation}:{slice_.topology}",
            chips_per_host_bounds=slice_.host_shape,
            wrap=(*slice_.wraps, False)[:3],
            # v4 and v5p run the two cores of a chip as one device, which is not the default here.
            chip_config_name="megacore" if slice_.chip.devices < slice_.chip.cores else "default",
            num_slices=target.slices,
        ).devices
    except jax.errors.JaxRuntimeError as error:
        raise InvalidInput(
            f"the compiler does not know {target.text}: {str(error).splitlines()[0]}"
        ) from None


def mesh_on(
    target: Target,
    mesh_shape: tuple[int, ...],
    axis_names: tuple[str, ...],
    order: str,
    axis_types: tuple[AxisType, ...] | None = None,
) -> tuple[Mesh, snapshot.Mesh]:
    """Return the mesh of a target's devices, for JAX and as a record.

    Without `axis_types`, all axes are auto.

    Raises:
      InvalidInput: the mesh has another size, the order is unknown, or JAX cannot map the mesh to the torus.
    """
    targets.require_size(target, mesh_shape)
    require_one_of("device_order", order, DEVICE_ORDERS)
    devices = devices_of(target)
    split = False
    if order == "row-major" or target.slice is None:  # all GPUs of a host are equally close
        placed = np.array(devices).reshape(mesh_shape)
    else:
        placed, split = _on_torus(target, mesh_shape, devices)
    mesh = Mesh(placed, axis_names, axis_types=axis_types)
    return mesh, placed_record(target, mesh, order, split)


def _on_torus(target: Target, mesh_shape: tuple[int, ...], devices: list[Any]) -> tuple[np.ndarray, bool]:
    across = _slices_along(target, mesh_shape)
    inside = tuple(size // slices for size, slices in zip(mesh_shape, across, strict=True))

    def placed(split: bool) -> np.ndarray:
        if target.slices == 1:
            return mesh_utils.create_device_mesh(mesh_shape, devices, allow_split_physical_axes=split)
        return mesh_utils.create_hybrid_device_mesh(inside, across, devices, allow_split_physical_axes=split)

    try:
        return placed(False), False
    except NotImplementedError:
        pass  # only possible if an axis of the torus is split
    try:
        return placed(True), True
    except (NotImplementedError, ValueError, AssertionError) as error:
        raise InvalidInput(
            f"mesh {shape_text(mesh_shape)} does not fit the torus of {target.text} "
            f"({type(error).__name__}): choose device_order row-major or other axis sizes"
        ) from None


def _slices_along(target: Target, mesh_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the number of slices that each mesh axis crosses: the most along the first axes."""
    left, across = target.slices, []
    for size in mesh_shape:
        across.append(math.gcd(left, size))
        left //= across[-1]
    assert left == 1  # the mesh has all devices of the target
    return tuple(across)


def placed_record(target: Target, mesh: Mesh, order: str, split: bool) -> snapshot.Mesh:
    """Return a mesh of all devices of the target as a record, with the place of each on the torus."""
    record = replace(mesh_record(mesh), device_order=order)
    if target.slice is None:
        return record
    assert math.prod(mesh.devices.shape) == target.devices
    return replace(
        record,
        split=split,
        topology=target.slice.shape,
        wraps=target.slice.wraps,
        coordinates=tuple(tuple(device.coords[: len(target.slice.shape)]) for device in mesh.devices.flat),
        cores=tuple(device.core_on_chip for device in mesh.devices.flat),
    )
