"""Save a train state with Orbax in one layout, restore it in another, and compare all values."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax.core import meta
from orbax.checkpoint import __version__ as orbax_version
from orbax.checkpoint import v1 as orbax

from inspector import layout as layouts
from inspector.core import temporary_folder, typed_json
from inspector.core.errors import InvalidInput
from inspector.core.job_report import JobReport
from inspector.core.snapshot import Snapshot, Source
from inspector.guides.restore.checkpoint import Compared, Restored, Saved
from inspector.layout import Layout
from inspector.layout.plan import now
from inspector.model import PyTree
from inspector.producers.arrays.leaves import leaves_of
from inspector.producers.arrays.live_arrays import live_array
from inspector.producers.arrays.records import bytes_per_device
from inspector.producers.model.abstract import versions
from inspector.producers.model.build import (
    first_inputs,
    model_and_mesh,
    refuse_too_large,
    signatures,
    tracing,
)

CHECKPOINT = "checkpoint"  # the folder that Orbax writes
VALUES = "values"  # the folder with the same values, one file of raw bytes per array


def save(payload: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """Worker job: save a checkpoint of `layout` in `folder` and return a `Saved` as JSON."""
    layout = layouts.from_json(payload["layout"])
    with temporary_folder.held(payload["folder"]) as folder:
        return typed_json.encode(save_state(layout, folder, report, payload.get("memory")))


def restore(payload: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """Worker job: restore the checkpoint in `folder` with `layout` and return a `Restored` as JSON."""
    layout = layouts.from_json(payload["layout"])
    with temporary_folder.held(payload["folder"]) as folder:
        return typed_json.encode(restore_state(layout, folder, report))


def save_state(layout: Layout, folder: Path, report: JobReport, memory: int | None = None) -> Saved:
    """Initialize the layout's train state, train one step so that no moment is zero, and save it.

    Raises:
      InvalidInput: the programs need more than `memory`, by default that of this machine.
    """
    model, mesh = model_and_mesh(layout, report)
    with tracing(layout, mesh):
        of_init, *others = signatures(model, replace(layout, donate=False), mesh)
        programs = [of_init, *(other for other in others if other.name == "train_step")]
        report("compile")
        # Two programs, as in a run: in a single one, hundreds of emulated devices deadlock in collectives.
        compiled = [program.jitted().lower(*program.arguments).compile() for program in programs]
        needed = max(map(bytes_per_device, compiled))
        refuse_too_large(needed, layout, memory, "a train step of the layout to be saved")
        key, batch = first_inputs(model, of_init)
        report("train")
        state = jax.block_until_ready(compiled[0](key, batch))
        for step in compiled[1:]:
            state, _ = jax.block_until_ready(step(state, batch))

    report("save")
    began = time.perf_counter()
    orbax.save(folder / CHECKPOINT, _without_boxes(state))
    seconds = time.perf_counter() - began
    files = (path for path in (folder / CHECKPOINT).rglob("*") if path.is_file())
    file_bytes = sum(path.stat().st_size for path in files)
    (folder / VALUES).mkdir()
    leaves = list(leaves_of(state))
    for number, leaf in enumerate(leaves):
        report("values", done=number, of=len(leaves))
        np.asarray(leaf.value).tofile(_values_file(folder, number))
    return Saved(_snapshot(layout, state, model.names == "logical"), file_bytes, seconds)


def restore_state(layout: Layout, folder: Path, report: JobReport) -> Restored:
    """Restore the checkpoint with this layout's shardings, and compare every shard with the saved values."""
    model, mesh = model_and_mesh(layout, report)
    with tracing(layout, mesh):
        readers = [signature for signature in signatures(model, layout, mesh) if "state" in signature.inputs]
        if not readers:
            raise InvalidInput(f"{layout.model} has no program that reads the state")
        abstract, shardings = readers[0].inputs["state"]
    wanted = jax.tree.map(
        lambda leaf, chosen: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=chosen),
        _without_boxes(abstract),
        _without_boxes(shardings),
    )
    report("restore")
    began = time.perf_counter()
    values = jax.block_until_ready(orbax.load(folder / CHECKPOINT, wanted))
    seconds = time.perf_counter() - began
    state = meta.replace_boxed(abstract, values)
    compared = []
    leaves = list(leaves_of(state))
    for number, leaf in enumerate(leaves):
        report("compare", done=number, of=len(leaves))
        compared.append(compare(leaf.path, leaf.value, _values_file(folder, number)))
    return Restored(_snapshot(layout, state, model.names == "logical"), tuple(compared), seconds)


def compare(path: str, value: jax.Array, file: Path) -> Compared:
    """Compare every shard on every device with the raw bytes in a file.

    An element that differs on several devices counts once. If the file has another size than the array,
    all elements differ.
    """
    itemsize = value.dtype.itemsize
    elements = math.prod(value.shape)
    if file.stat().st_size != elements * itemsize:
        return Compared(path, elements, elements, (0,) * value.ndim if elements else None)
    if not elements:
        return Compared(path, 0, 0, None)
    # Compared as bytes, because NaN differs from itself and 0.0 equals -0.0.
    saved = np.memmap(file, np.uint8, "r").reshape(*value.shape, itemsize)
    unequal: np.ndarray | None = None
    for shard in value.addressable_shards:
        # A scalar cannot be viewed with another item size, so it gets a dimension first.
        data = np.ascontiguousarray(np.asarray(shard.data)[..., None])
        differs = data.view(np.uint8) != saved[shard.index]
        if differs.any():
            unequal = np.zeros(value.shape, bool) if unequal is None else unequal
            unequal[shard.index] |= differs.any(axis=-1)
    if unequal is None:
        return Compared(path, elements, 0, None)
    first = np.unravel_index(int(unequal.argmax()), value.shape)
    return Compared(path, elements, int(unequal.sum()), tuple(map(int, first)))


def _without_boxes(state: PyTree) -> PyTree:
    # `unbox` would add sharding constraints, which need a mesh.
    return jax.tree.map(
        lambda leaf: leaf.value if meta.is_axis_metadata(leaf) else leaf,
        state,
        is_leaf=meta.is_axis_metadata,
    )


def _values_file(folder: Path, number: int) -> Path:
    return folder / VALUES / str(number)


def _snapshot(layout: Layout, state: PyTree, logical: bool) -> Snapshot:
    mesh = layout.mesh()
    return Snapshot(
        source=Source("cpu", "cpu", now(), versions() | {"orbax.checkpoint": orbax_version}),
        layout=layout.to_json(),
        mesh=mesh,
        arrays=tuple(live_array(leaf, mesh, logical) for leaf in leaves_of(state)),
    )
