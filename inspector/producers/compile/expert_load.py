"""The tokens of each expert in a run, counted by a program apart from those of the model."""

import jax
import numpy as np
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from inspector.core.errors import InvalidInput
from inspector.core.snapshot import ExpertLoad
from inspector.model import Model, PyTree


def expert_load(model: Model, mesh: Mesh, state: PyTree, batch: PyTree, dropless: bool) -> ExpertLoad | None:
    """Return the tokens of each expert with this state; None for a model without `routing`.

    It must be called while the model is traced, under its mesh and rules.

    Args:
      dropless: whether experts have their mesh axes also if rules give these to the batch first.

    Raises:
      InvalidInput: `routing` returns something else.
    """
    if model.routing is None:
        return None
    routing = jax.jit(model.routing, out_shardings=NamedSharding(mesh, PartitionSpec()))
    counts = np.asarray(routing(state, batch))
    if counts.ndim != 3 or not np.issubdtype(counts.dtype, np.integer) or not counts.size:
        raise InvalidInput(
            f"routing returns {counts.dtype}{list(counts.shape)}, but must return integers for each "
            "layer, sequence and expert"
        )
    counts = counts.astype(np.int64)
    by_device = _by_device(counts, mesh, dropless) if model.names == "logical" else None
    return ExpertLoad(
        layers=len(counts),
        tokens=tuple(map(int, counts.sum(axis=(0, 1)))),
        devices=None if by_device is None else tuple(map(int, by_device.sum(axis=0))),
        busiest=None if by_device is None else int(by_device.max(axis=1).sum()),
    )


def _by_device(counts: np.ndarray, mesh: Mesh, dropless: bool) -> np.ndarray | None:
    """Return the tokens of each layer for the experts of each device; None if they are sharded unevenly.

    A device has the sequences of the axes of `batch` that its experts leave free.
    """
    experts, sequences = _axes("expert", "batch")
    if dropless:
        (experts,), (sequences,) = _axes("expert"), _axes("batch")
        sequences = tuple(axis for axis in sequences if axis not in experts)
    try:
        parts = NamedSharding(mesh, PartitionSpec(sequences, experts)).devices_indices_map(counts.shape[1:])
    except ValueError:
        return None
    return np.stack([counts[:, *parts[device]].sum(axis=(1, 2)) for device in mesh.devices.flat], axis=1)


def _axes(*names: str) -> list[tuple[str, ...]]:
    """Return the mesh axes that the current rules give each of these logical axes."""
    entries = (*(nn.logical_to_mesh_axes(names) or ()), *(None,) * len(names))[: len(names)]
    return [(entry,) if isinstance(entry, str) else tuple(entry or ()) for entry in entries]
