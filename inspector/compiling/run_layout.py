"""Build and run a layout, read the sharding of every array, and count the tokens of experts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from inspector import layout as layouts
from inspector.compiling.compiled_program import CompiledProgram, compile_all, unsafe_findings, unsafe_text
from inspector.layout import Layout
from inspector.layout.fields import print_mesh
from inspector.layout.plan import now
from inspector.model import Model, PyTree
from inspector.model.built_in.watching import Watched
from inspector.records.job_report import JobReport
from inspector.records.snapshot import ExpertLoad, Snapshot, Source
from inspector.text.errors import InvalidInput
from inspector.text.formatting import bytes_text, counted
from inspector.tracing.leaves import all_leaves, mesh_record
from inspector.tracing.live_arrays import live_arrays, live_bytes, watched_arrays
from inspector.tracing.model.abstract import versions
from inspector.tracing.model.build import first_inputs, model_and_mesh, refuse_too_large, signatures, tracing
from inspector.tracing.model.state_specs import given_specs, with_patterns


def require_usable(layout: Layout) -> None:
    """Refuse a layout that this machine cannot run.

    Raises:
      InvalidInput: JAX found fewer devices than the mesh has.
    """
    devices = jax.local_devices()
    if len(devices) < layout.devices:
        raise InvalidInput(
            f"mesh {print_mesh(layout.mesh_shape)} has {counted(layout.devices, 'device')}, but target "
            f"local has {len(devices):,} ({devices[0].device_kind})"
        )


def capacity() -> int | None:
    """Return the bytes that programs can use on the smallest local device; None if JAX does not know."""
    limits = [(device.memory_stats() or {}).get("bytes_limit") for device in jax.local_devices()]
    known = [int(limit) for limit in limits if limit]
    return min(known) if known and len(known) == len(limits) else None


def refuse_larger_than_machine(needed: int) -> None:
    """Refuse programs that do not fit on a device.

    Args:
      needed: bytes on each device, as the compiler counted them.

    Raises:
      InvalidInput: a device has less memory.
    """
    available = capacity()
    if available is not None and needed > available:
        raise InvalidInput(
            f"this layout as compiled needs {bytes_text(needed)} on each device, but a "
            f"{jax.local_devices()[0].device_kind} has {bytes_text(available)} for programs"
        )


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


def run_job(payload: dict[str, Any], report: JobReport) -> dict[str, Any]:
    """Worker job: run a layout in JSON and return its Snapshot as JSON from process 0."""
    snapshot = run_layout(layouts.from_json(payload["layout"]), report, payload.get("memory"))
    return snapshot.to_json() if jax.process_index() == 0 else {}


def run_layout(layout: Layout, report: JobReport, memory: int | None = None) -> Snapshot:
    """Compile and run init, train step and inference, the last two `layout.steps` times more.

    The target `local` uses the devices that JAX finds on this machine, otherwise they are emulated.

    Raises:
      InvalidInput: this machine has too few devices, or the compiled programs need more memory than it has.
        For emulated devices that is `memory`, by default the free memory of this machine.
    """
    if layout.is_local:
        require_usable(layout)
    model, mesh = model_and_mesh(layout, report)
    mesh_of_record = mesh_record(mesh)
    watched: list[Watched] = []
    with tracing(layout, mesh):
        wanted = signatures(model, layout, mesh)
        programs = compile_all(wanted, lambda name: CompiledProgram(name, report), mesh_of_record, watched)
        needed = max(program.bytes_per_device() for program in programs)
        if layout.is_local:
            refuse_larger_than_machine(needed)
        else:
            refuse_too_large(needed, layout, memory, "this layout as compiled")

        batch, state, output = _executed(programs, layout, *first_inputs(model, wanted[0]))
        dropless = dict(layout.sizes).get("routing") == "dropless"
        load = expert_load(model, mesh, state, batch, dropless)

    report("read")
    logical = model.names == "logical"
    leaves = all_leaves(model, batch, state, output)
    # The parameters are part of the state; the last owner of an array counts.
    alive = live_bytes(
        [
            ("optimizer state and step", state),
            ("params", getattr(state, "params", ())),
            ("batch", batch),
            ("output", output),
        ]
    )
    return Snapshot(
        source=Source(
            *(layout.target, layout.target, now(), versions()),
            processes=jax.process_count(),
            unsafe_compiler_options=unsafe_text(),
        ),
        layout=layout.to_json(),
        mesh=mesh_of_record,
        arrays=(
            *with_patterns(
                live_arrays(leaves, mesh_of_record, logical),
                given_specs(state, model.state_specs, layout.state_specs, mesh, layout.model),
            ),
            *watched_arrays(watched, mesh_of_record, logical, list_shards=True),
        ),
        programs=tuple(
            replace(program.record(), expert_load=None if program.name == "init" else load)
            for program in programs
        ),
        findings=unsafe_findings(),
        live=alive,
    )


def _executed(
    programs: Sequence[CompiledProgram], layout: Layout, key: jax.Array, batch: PyTree
) -> tuple[Any, Any, Any]:
    """Run init and the other programs. Return the batch, the last state, and the output of inference."""
    init, *others = programs
    state = init.first(key, batch)
    output = None
    for program in others:
        state, result = _run_steps(program, state, batch, layout.steps)
        if program.name == "apply":
            output = result
    # A donated state is deleted by the step, so the next step needs the new state.
    if layout.timeit:
        for program in others:
            next_arguments = _next_step if program.donates_state else None
            state, _ = program.time_it(state, batch, next_arguments=next_arguments)
    if layout.trace and others:
        next_arguments = _next_step if others[0].donates_state else None
        state, _ = others[0].trace(state, batch, next_arguments=next_arguments)
    return batch, state, output


def _run_steps(program: CompiledProgram, state: PyTree, batch: PyTree, steps: int) -> tuple[Any, Any]:
    """Run a program once and `steps` times more. Return the last state, and the last other result."""
    results: list[Any] = []

    def keep(result: PyTree) -> None:
        nonlocal state
        if program.changes_state:
            state, result = result
        # A loss is read after the last step, so that no step waits for it.
        if program.name != "train_step":
            results.clear()
        results.append(result)

    keep(program.first(state, batch))
    for _ in program.steps(steps):
        keep(program.run(state, batch))
    if program.name == "train_step":
        program.keep_losses(results)
    return state, results[-1]


def _next_step(arguments: tuple[Any, ...], result: tuple[Any, ...]) -> tuple[Any, ...]:
    return (result[0], *arguments[1:])
