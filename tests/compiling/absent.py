"""Jobs that compile for machines that are not present, to compare with the production job."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

JOBS = {
    "compile": "inspector.compiling.compile_layout:compile_job",
    "describe": f"{__name__}:describe",
    "look": f"{__name__}:look",
    "compiled_alone": f"{__name__}:compiled_alone",
    "with_constant": f"{__name__}:with_constant",
    "accepted_options": f"{__name__}:accepted_options",
}


def describe(payload: dict[str, Any], report: Callable[..., None]) -> dict[str, Any]:
    """Return the attributes of the compiler's devices for each target."""
    from inspector.compiling import compile_layout
    from inspector.machines import targets

    found = {}
    for text in payload["targets"]:
        devices = compile_layout.devices_of(targets.parse(text))
        chips = {(*device.coords,) for device in devices}
        first = {(*device.coords,) for device in devices if device.process_index == 0}
        found[text] = {
            "devices": len({device.id for device in devices}),
            "chips": len(chips),
            "hosts": len({device.process_index for device in devices}),
            "shape": [max(place) + 1 for place in zip(*chips, strict=True)],
            "host_shape": [max(place) + 1 for place in zip(*first, strict=True)],
            "kind": devices[0].device_kind,
        }
    return found


def look(payload: dict[str, Any], report: Callable[..., None]) -> dict[str, Any]:
    """A layout compiled for a target, and the figures of XLA for each program of it.

    `mesh` takes the place of the layout's, so that it may be larger than emulated devices can be.
    """
    from inspector import layout as layouts
    from inspector.compiling import compile_layout as compile_module
    from inspector.machines import targets

    layout = layouts.from_json(payload["layout"])
    if "mesh" in payload:
        layout = replace(layout, mesh_shape=tuple(payload["mesh"]))
    made = []
    record = compile_module.AheadOfTimeProgram.record

    def spying(program: Any) -> Any:
        made.append(program)
        return record(program)

    compile_module.AheadOfTimeProgram.record = spying
    try:
        snapshot = compile_module.compile_layout(
            layout, targets.parse(payload["target"]), report, payload.get("order", "row-major")
        )
    finally:
        compile_module.AheadOfTimeProgram.record = record
    return {
        "snapshot": json.loads(json.dumps(snapshot.to_json())),
        "seen": {program.name: _seen(program._executable) for program in made},
    }


def accepted_options(payload: dict[str, Any], report: Callable[..., None]) -> dict[str, Any]:
    """Compile a matrix product with each set of options. Return JAX's error for each set, or None."""
    import jax
    from jax.sharding import SingleDeviceSharding

    from inspector.compiling import compile_layout
    from inspector.machines import compiler_options, targets

    target = payload["target"]
    device = compile_layout.devices_of(targets.parse(target))[0] if target else jax.devices()[0]
    shape = jax.ShapeDtypeStruct((64, 64), "float32")
    # The sine is a kernel of its own, for which the GPU compiler starts the assembler.
    jitted = jax.jit(lambda x: jax.numpy.sin(x @ x), in_shardings=SingleDeviceSharding(device))
    lowered = jitted.lower(shape)
    errors = []
    for options in payload["sets"]:
        try:
            lowered.compile(compiler_options=compiler_options.arguments(map(tuple, options)))
            errors.append(None)
        except jax.errors.JaxRuntimeError as error:
            errors.append(str(error).splitlines()[0])
    return {"errors": errors}


def compiled_alone(payload: dict[str, Any], report: Callable[..., None]) -> dict[str, Any]:
    """Compile a matrix product with plain JAX and return the figures of its executable."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding, PartitionSpec

    from inspector.compiling import compile_layout
    from inspector.machines import targets
    from inspector.records import typed_json

    mesh, kept = compile_layout.mesh_on(
        targets.parse(payload["target"]), tuple(payload["mesh"]), ("x", "y"), payload["order"]
    )
    rows, columns = (NamedSharding(mesh, PartitionSpec(*spec)) for spec in (("x", "y"), ("y",)))
    shape = jax.ShapeDtypeStruct((256, 256), jnp.float32)
    compiled = jax.jit(lambda a, b: a @ b, in_shardings=(rows, columns)).lower(shape, shape).compile()
    return {"mesh": typed_json.encode(kept), "devices": list(kept.devices), **_seen(compiled)}


def build_with_constant() -> Any:
    """Return a user's model that computes a constant while it is traced, as rotary embeddings do."""
    import jax
    from jax import numpy as jnp

    from inspector.model import Model

    def apply(state: Any, batch: Any) -> Any:
        with jax.ensure_compile_time_eval():
            positions = jnp.sin(jnp.arange(16.0))
        return (batch["x"] + positions) @ state["w"]

    return Model(
        init=lambda key, batch: {"w": jax.random.normal(key, (16, 24))},
        batch={"x": jax.ShapeDtypeStruct((8, 16), jnp.float32)},
        apply=apply,
        batch_axes={"x": ("data", None)},
        names="mesh",
    )


def with_constant(payload: dict[str, Any], report: Callable[..., None]) -> dict[str, Any]:
    """Compile `build_with_constant` for a target and return the shardings of `apply` by path."""
    from inspector import layout as layouts
    from inspector.compiling.compile_layout import compile_layout
    from inspector.machines import targets
    from inspector.model.built_in import catalogue
    from inspector.tracing.model.describe import entry_of

    name = f"{__name__}:build_with_constant"
    catalogue.register(entry_of(name))
    layout = layouts.parse({"model": name, "mesh": "2x2", "axes": "data,model"}).unwrap()
    snapshot = compile_layout(layout, targets.parse(payload["target"]), report)
    return {sharding.path: sharding.compiled for sharding in snapshot.program("apply").shardings}


def _seen(executable: Any) -> dict[str, Any] | None:
    if executable is None:
        return None
    opcodes: Counter[str] = Counter(
        _operation(instruction.opcode.name, computation.name)
        for module in executable.runtime_executable().hlo_modules()
        for computation in module.computations()
        for instruction in computation.instructions()
    )
    memory = executable.memory_analysis()
    return {
        "opcodes": dict(opcodes),
        "arguments": memory.argument_size_in_bytes,
        "outputs": memory.output_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "aliased": memory.alias_size_in_bytes,
    }


def _operation(opcode: str, computation: str) -> str:
    """Return the operation that XLA's opcode is, in a computation of that name.

    `HloOpcode.kAllReduceStart` is `all-reduce`. In a computation that the compiler for TPUs names
    `all-reduce-scatter`, an all-reduce is a part of a reduce-scatter.
    """
    name = re.sub(r"(?<!^)(?=[A-Z])", "-", opcode.removeprefix("k")).lower().removesuffix("-start")
    return "reduce-scatter" if name == "all-reduce" and "all-reduce-scatter" in computation else name
