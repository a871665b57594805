"""Convert host-local arrays to a global array and back, in the processes of a mesh."""

import re
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from inspector.guides.array_fields import JaxError
from inspector.guides.processes import Exchanged, Held, HostLocal, ProcessView
from inspector.records import typed_json
from inspector.records.job_report import JobReport
from inspector.sharding.placement import jax_entry
from inspector.tracing.leaves import Leaf, index_bounds, mesh_record
from inspector.tracing.live_arrays import gathered, live_array

# JAX 0.12 ends a message with the line of this file that called it.
_SOURCE = re.compile(r"\s*This error occurs at source:.*", re.DOTALL)


def exchange(payload: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """Worker job of all processes: return the Exchanged of a HostLocal in JSON as JSON."""
    wanted = typed_json.decode(HostLocal, payload["host_local"])
    report("exchange")
    result = exchanged(wanted)
    return typed_json.encode(result) if jax.process_index() == 0 else {}


def exchanged(wanted: HostLocal) -> Exchanged:
    """Convert the arrays, compute, convert back, and return the view of every process."""
    mesh = Mesh(np.array(jax.devices()).reshape(wanted.mesh_shape), wanted.axis_names)
    spec = PartitionSpec(*map(jax_entry, wanted.spec))
    local = wanted.given(jax.process_index())
    whole = returned = None
    failure: dict[str, Any] | None = None
    step = "to_global"
    try:
        given: Any = local
        if wanted.convert:
            given = whole = multihost_utils.host_local_array_to_global_array(local, mesh, spec)
        step = "jit"
        identity = jax.jit(lambda x: x, in_shardings=NamedSharding(mesh, spec))
        computed = jax.block_until_ready(identity(given))
        whole = computed if whole is None else whole
        step = "to_local"
        returned = multihost_utils.global_array_to_host_local_array(computed, mesh, spec)
    except Exception as error:  # the error is the result
        text = _SOURCE.sub("", str(error))
        failure = {"step": step, "kind": type(error).__name__, "text": text}
    own = ProcessView(**_process(mesh), given=_values(local), **_of_global(whole), **_back(returned))
    # All processes have the same shapes, so JAX raises the same error in all of them.
    rows = gathered({"view": typed_json.encode(own), "failure": failure, "made": whole is not None})
    views = tuple(typed_json.decode(ProcessView, row["view"], "a process's view") for row in rows)
    return Exchanged(
        mesh=mesh_record(mesh),
        array=live_array(Leaf("batch", "batch", whole, None), mesh_record(mesh), logical=False)
        if all(row["made"] for row in rows)
        else None,
        sharding=None if whole is None else str(whole.sharding),
        views=views,
        refusal=_refusal([row["failure"] for row in rows]),
        versions={"jax": jax.__version__},
    )


def _process(mesh: Mesh) -> dict[str, Any]:
    try:
        part = tuple(mesh.local_mesh.shape.values())
    except ValueError:
        part = None  # the devices of this process are not a block of the mesh
    return {
        "process": jax.process_index(),
        "processes": jax.process_count(),
        "devices": tuple(device.id for device in jax.local_devices()),
        "all_devices": jax.device_count(),
        "local_mesh": part,
    }


def _of_global(whole: jax.Array | None) -> dict[str, Any]:
    if whole is None:
        return {}
    reading = None
    try:
        np.asarray(whole)
    except RuntimeError as error:
        reading = str(error)
    return {
        "addressable": tuple(
            Held(
                shard.device.id,
                index_bounds(shard.index, whole.shape),
                _values(np.asarray(shard.data)),
            )
            for shard in whole.addressable_shards
        ),
        "global_shards": len(whole.global_shards),
        "without_data": sum(shard.data is None for shard in whole.global_shards),
        "fully_addressable": whole.is_fully_addressable,
        "fully_replicated": whole.is_fully_replicated,
        "reading": reading,
    }


def _back(returned: jax.Array | None) -> dict[str, Any]:
    if returned is None:
        return {}
    return {"returned_shape": tuple(returned.shape), "returned": _values(np.asarray(returned))}


def _refusal(failures: list[dict[str, Any] | None]) -> JaxError | None:
    failed = tuple(process for process, failure in enumerate(failures) if failure is not None)
    if not failed:
        return None
    first = failures[failed[0]]
    assert first is not None
    return JaxError(first["step"], first["kind"], first["text"], failed)


def _values(values: np.ndarray) -> tuple[int, ...]:
    return tuple(values.ravel().tolist())
