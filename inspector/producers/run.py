"""Build and run a layout, and read the sharding of every array from the live arrays."""

from __future__ import annotations

from typing import Any

import jax

from inspector import layout as layouts
from inspector.core.snapshot import Snapshot, Source
from inspector.layout import Layout
from inspector.layout.plan import now
from inspector.model.built_in.watching import Watched
from inspector.producers.abstract import versions
from inspector.producers.build import (
    first_inputs,
    model_and_mesh,
    refuse_too_large,
    signatures,
    tracing,
)
from inspector.producers.compiled_program import CompiledProgram, Report, compile_all
from inspector.producers.leaves import all_leaves
from inspector.producers.live_arrays import live_arrays, live_bytes, watched_arrays
from inspector.producers.records import mesh_record


def run_job(payload: dict[str, Any], report: Report) -> dict[str, Any]:
    """Worker job: run a layout in JSON and return a Snapshot of kind `cpu` as JSON from process 0."""
    found = run_layout(layouts.from_json(payload["layout"]), report, payload.get("memory"))
    return found.to_json() if jax.process_index() == 0 else {}


def run_layout(layout: Layout, report: Report, memory: int | None = None) -> Snapshot:
    """Compile and run init, train step and inference, the last two `layout.steps` times more.

    Raises:
      InvalidInput: the compiled programs need more than `memory`, by default that of this machine.
    """
    model, mesh = model_and_mesh(layout, report)
    mesh_of_record = mesh_record(mesh)
    watched: list[Watched] = []
    with tracing(layout, mesh):
        wanted = signatures(model, layout, mesh)
        programs = compile_all(
            wanted, lambda name: CompiledProgram(name, report), mesh_of_record, watched
        )
        init, train_step, *applies = programs
        apply = applies[0] if applies else None
        needed = max(program.bytes_per_device() for program in programs)
        refuse_too_large(needed, layout, memory, "this layout as compiled")

        key, batch = first_inputs(model, wanted[0])
        state = init.first(key, batch)
        state, loss = train_step.first(state, batch)
        losses = [loss]
        for _ in train_step.steps(layout.steps):
            state, loss = train_step.run(state, batch)
            losses.append(loss)
        train_step.keep_losses(losses)
        output = None
        if apply is not None:
            output = apply.first(state, batch)
            for _ in apply.steps(layout.steps):
                output = apply.run(state, batch)
        # A donated state is deleted by the step, so the next step needs the new state.
        next_arguments = _next_step if layout.donate else None
        if layout.timeit:
            state, _ = train_step.time_it(state, batch, next_arguments=next_arguments)
            if apply is not None:
                apply.time_it(state, batch)
        if layout.trace:
            state, _ = train_step.trace(state, batch, next_arguments=next_arguments)

    report("read")
    del losses, loss, key  # so that `live_bytes` does not count them
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
        source=Source("cpu", "cpu", now(), versions(), processes=jax.process_count()),
        layout=layout.to_json(),
        mesh=mesh_of_record,
        arrays=(
            *live_arrays(leaves, mesh_of_record, logical),
            *watched_arrays(watched, mesh_of_record, logical, list_shards=True),
        ),
        programs=tuple(program.record() for program in programs),
        live=alive,
    )


def _next_step(arguments: tuple[Any, ...], result: tuple[Any, ...]) -> tuple[Any, ...]:
    return (result[0], *arguments[1:])
