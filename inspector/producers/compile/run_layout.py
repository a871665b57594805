"""Build and run a layout, and read the sharding of every array from the live arrays."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax

from inspector import layout as layouts
from inspector.core.job_report import JobReport
from inspector.core.snapshot import Snapshot, Source
from inspector.layout import Layout
from inspector.layout.plan import now
from inspector.model import PyTree
from inspector.model.built_in.watching import Watched
from inspector.producers.arrays.leaves import all_leaves
from inspector.producers.arrays.live_arrays import live_arrays, live_bytes, watched_arrays
from inspector.producers.arrays.records import mesh_record
from inspector.producers.compile import local_devices
from inspector.producers.compile.compiled_program import (
    CompiledProgram,
    compile_all,
    unsafe_findings,
    unsafe_text,
)
from inspector.producers.compile.expert_load import expert_load
from inspector.producers.model.abstract import versions
from inspector.producers.model.build import (
    first_inputs,
    model_and_mesh,
    refuse_too_large,
    signatures,
    tracing,
)
from inspector.producers.model.state_specs import given_specs, with_patterns


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
        local_devices.require_usable(layout)
    model, mesh = model_and_mesh(layout, report)
    mesh_of_record = mesh_record(mesh)
    watched: list[Watched] = []
    with tracing(layout, mesh):
        wanted = signatures(model, layout, mesh)
        programs = compile_all(wanted, lambda name: CompiledProgram(name, report), mesh_of_record, watched)
        needed = max(program.bytes_per_device() for program in programs)
        if layout.is_local:
            local_devices.refuse_too_large(needed)
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
