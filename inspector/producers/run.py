"""Build and run a layout on emulated devices, and read where everything is from the live arrays."""

from __future__ import annotations

from typing import Any

import jax

from inspector import layout as layouts
from inspector.core.snapshot import Array, Mesh, Snapshot, Source
from inspector.layout import Layout
from inspector.layout import emulation as machine
from inspector.layout.plan import now
from inspector.models.watching import Watched
from inspector.producers.abstract import versions
from inspector.producers.build import build_model, make_mesh, signatures, tracing
from inspector.producers.compiled_program import CompiledProgram, Report, compile_all
from inspector.producers.leaves import Leaf, all_leaves
from inspector.producers.live_arrays import chosen_array, live_arrays, live_bytes
from inspector.producers.records import mesh_record


def run_job(payload: dict[str, Any], report: Report) -> dict[str, Any]:
    """Worker job: a layout as JSON in, a Snapshot of kind `cpu` as JSON out."""
    found = run_layout(layouts.from_json(payload["layout"]), report, payload.get("memory"))
    return found.to_json() if jax.process_index() == 0 else {}  # all processes found the same


def run_layout(layout: Layout, report: Report, memory: int | None = None) -> Snapshot:
    """Compile init, train step and inference, then run them: each once, the last two `layout.steps` times.

    `memory` is how many bytes of this machine may be counted on; None asks the machine.

    Raises:
      InvalidInput: the compiled programs need more memory than that.
    """
    report("build")
    model = build_model(layout)
    mesh = make_mesh(layout)
    plain_mesh = mesh_record(mesh)
    watched: list[Watched] = []
    with tracing(layout, mesh):
        asked = signatures(model, layout, mesh)
        programs = compile_all(
            asked, lambda name: CompiledProgram(name, report), plain_mesh, watched
        )
        init, train_step, *applies = programs
        apply = applies[0] if applies else None
        machine.refuse_too_large(
            max(program.bytes_per_device() for program in programs) * layout.devices,
            machine.available_bytes() if memory is None else memory,
            "this layout as compiled",
        )

        key = jax.device_put(jax.random.key(0), asked[0].sharding("key"))
        # Not jitted: a program more to compile would cost more than it saves.
        batch = jax.device_put(model.batch(key), asked[0].sharding("batch"))
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
        # A state that was donated is no more, and the next step takes the one that came of it.
        following = _next_step if layout.donate else None
        if layout.timeit:
            state, _ = train_step.time_it(state, batch, following=following)
            if apply is not None:
                apply.time_it(state, batch)
        if layout.trace:
            state, _ = train_step.watch(state, batch, following=following)

    report("read")
    del losses, loss, key  # not alive on purpose from here on
    logical = model.names == "logical"
    leaves = all_leaves(model, batch, state, output)
    # The last owner named for an array stands, and the parameters are a part of the state.
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
        mesh=plain_mesh,
        arrays=(
            *live_arrays(leaves, plain_mesh, logical),
            *_watched_arrays(watched, plain_mesh, logical),
        ),
        programs=tuple(program.record() for program in programs),
        live=alive,
    )


def _next_step(arguments: tuple[Any, ...], result: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of the train step after the one with these arguments and this result."""
    return (result[0], *arguments[1:])


def _watched_arrays(watched: list[Watched], mesh: Mesh, logical: bool) -> list[Array]:
    """Activations and gradients of the train step; one that is traced twice is told once."""
    arrays = {}
    for value in watched:
        group, _, _ = value.path.partition("/")
        leaf = Leaf(value.path, group, value, value.names)
        arrays.setdefault(
            value.path, chosen_array(leaf, value.sharding, mesh, logical, "train_step")
        )
    return list(arrays.values())
