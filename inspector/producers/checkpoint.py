"""Save a train state with Orbax under one layout, restore it under another, and compare all values."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax.core import meta
from jax.sharding import NamedSharding, PartitionSpec
from orbax.checkpoint import __version__ as orbax_version
from orbax.checkpoint import v1 as orbax

from inspector import layout as layouts
from inspector.core import typed_json
from inspector.core.snapshot import Snapshot, Source
from inspector.guides.restore.checkpoint import Compared, Restored, Saved
from inspector.layout import Layout
from inspector.layout import emulation as machine
from inspector.layout.plan import now
from inspector.producers.abstract import versions
from inspector.producers.build import (
    build_model,
    make_mesh,
    named_sharding,
    state_shardings,
    tracing,
)
from inspector.producers.leaves import leaves_of
from inspector.producers.live_arrays import live_array
from inspector.producers.readers import checkpoint_folder

Report = Callable[..., None]

CHECKPOINT = "checkpoint"  # Orbax's folder inside of ours
VALUES = "values"  # beside it, the same values without Orbax: a file of plain bytes for each array


def save(payload: dict[str, Any], report: Report) -> dict[str, Any]:
    """Worker job: a layout and a folder in, a `Saved` record out; the checkpoint is in the folder."""
    layout = layouts.from_json(payload["layout"])
    with checkpoint_folder.held(payload["folder"]) as folder:
        return typed_json.encode(save_state(layout, folder, report, payload.get("memory")))


def restore(payload: dict[str, Any], report: Report) -> dict[str, Any]:
    """Worker job: a layout and a folder with a checkpoint in, a `Restored` record out."""
    layout = layouts.from_json(payload["layout"])
    with checkpoint_folder.held(payload["folder"]) as folder:
        return typed_json.encode(restore_state(layout, folder, report))


def save_state(layout: Layout, folder: Path, report: Report, memory: int | None = None) -> Saved:
    """Make the layout's train state, train it one step so that no moment is zero, and save it.

    `memory` is how many bytes of this machine may be counted on; None asks the machine.

    Raises:
      InvalidInput: the compiled program needs more memory than that.
    """
    report("build")
    model = build_model(layout)
    mesh = make_mesh(layout)
    with tracing(layout, mesh):
        whole = NamedSharding(mesh, PartitionSpec())
        key = jax.device_put(jax.random.key(0), whole)
        batch_shardings = {
            name: named_sharding(axes, model, layout, mesh)
            for name, axes in model.batch_axes.items()
        }
        batch = jax.device_put(model.batch(key), batch_shardings)
        abstract = jax.eval_shape(model.init, key, batch)
        shardings = state_shardings(abstract, model, layout, mesh)
        report("compile")
        # Two programs, as when a layout is run: in one, hundreds of emulated devices come to wait for
        # each other in different collectives.
        init = jax.jit(model.init, out_shardings=shardings).lower(key, batch).compile()
        step = jax.jit(
            model.step, in_shardings=(shardings, batch_shardings), out_shardings=(shardings, None)
        )
        step = step.lower(abstract, batch).compile()
        machine.refuse_too_large(
            max(_bytes_per_device(program) for program in (init, step)) * layout.devices,
            machine.available_bytes() if memory is None else memory,
            "a train step of the layout to be saved",
        )
        report("train")
        state, _ = jax.block_until_ready(step(jax.block_until_ready(init(key, batch)), batch))

    report("save")
    began = time.perf_counter()
    orbax.save(folder / CHECKPOINT, _opened(state))
    seconds = time.perf_counter() - began
    file_bytes = sum(
        path.stat().st_size for path in (folder / CHECKPOINT).rglob("*") if path.is_file()
    )
    (folder / VALUES).mkdir()
    leaves = list(leaves_of(state))
    for number, leaf in enumerate(leaves):
        report("values", done=number, of=len(leaves))
        np.asarray(leaf.value).tofile(_values_file(folder, number))
    return Saved(_snapshot(layout, state, model.names == "logical"), file_bytes, seconds)


def restore_state(layout: Layout, folder: Path, report: Report) -> Restored:
    """Restore the checkpoint with this layout's shardings, and compare every shard with what was saved."""
    report("build")
    model = build_model(layout)
    mesh = make_mesh(layout)
    with tracing(layout, mesh):
        key = jax.eval_shape(lambda: jax.random.key(0))
        abstract = jax.eval_shape(model.init, key, jax.eval_shape(model.batch, key))
        shardings = state_shardings(abstract, model, layout, mesh)
    wanted = jax.tree.map(
        lambda leaf, chosen: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=chosen),
        _opened(abstract),
        shardings,
    )
    report("restore")
    began = time.perf_counter()
    opened = jax.block_until_ready(orbax.load(folder / CHECKPOINT, wanted))
    seconds = time.perf_counter() - began
    state = jax.tree.map(
        lambda box, value: box.replace_boxed(value) if meta.is_axis_metadata(box) else value,
        abstract,
        opened,
        is_leaf=meta.is_axis_metadata,
    )
    compared = []
    leaves = list(leaves_of(state))
    for number, leaf in enumerate(leaves):
        report("compare", done=number, of=len(leaves))
        compared.append(compare(leaf.path, leaf.value, _values_file(folder, number)))
    snapshot = _snapshot(layout, state, model.names == "logical")
    return Restored(snapshot, tuple(compared), seconds)


def compare(path: str, value: jax.Array, file: Path) -> Compared:
    """Hold every shard on every device, bit by bit, against the plain bytes in the file.

    An element counts once, on however many devices it differs. A file of another size than the array
    differs in every element.
    """
    itemsize = value.dtype.itemsize
    elements = math.prod(value.shape)
    if file.stat().st_size != elements * itemsize:
        return Compared(path, elements, elements, (0,) * value.ndim if elements else None)
    if not elements:
        return Compared(path, 0, 0, None)
    # Bytes, because to floats NaN differs from itself and 0.0 equals -0.0.
    saved = np.memmap(file, np.uint8, "r").reshape(*value.shape, itemsize)
    unequal: np.ndarray | None = None
    for shard in value.addressable_shards:
        # A scalar has no view of another size, so it gets a dimension first.
        data = np.ascontiguousarray(np.asarray(shard.data)[..., None])
        differs = data.view(np.uint8) != saved[shard.index]
        if differs.any():
            unequal = np.zeros(value.shape, bool) if unequal is None else unequal
            unequal[shard.index] |= differs.any(axis=-1)
    if unequal is None:
        return Compared(path, elements, 0, None)
    first = np.unravel_index(int(unequal.argmax()), value.shape)
    return Compared(path, elements, int(unequal.sum()), tuple(int(place) for place in first))


def _bytes_per_device(program: Any) -> int:
    """What one run holds on one device, by the compiler's own count."""
    counted = program.memory_analysis()
    if counted is None:
        return 0
    return (
        counted.argument_size_in_bytes
        + counted.output_size_in_bytes
        + counted.temp_size_in_bytes
        - counted.alias_size_in_bytes
    )


def _opened(state: Any) -> Any:
    """The tree of the boxes' values. Without `unbox`, which adds constraints that need a mesh."""
    return jax.tree.map(
        lambda leaf: leaf.value if meta.is_axis_metadata(leaf) else leaf,
        state,
        is_leaf=meta.is_axis_metadata,
    )


def _values_file(folder: Path, number: int) -> Path:
    return folder / VALUES / str(number)


def _snapshot(layout: Layout, state: Any, logical: bool) -> Snapshot:
    mesh = layout.mesh()
    found_with = versions() | {"orbax.checkpoint": orbax_version}
    return Snapshot(
        source=Source("cpu", "cpu", now(), found_with),
        layout=layout.to_json(),
        mesh=mesh,
        arrays=tuple(live_array(leaf, mesh, logical) for leaf in leaves_of(state)),
    )
