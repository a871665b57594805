"""`import hlo`: memory from the text equals the figures of the compiler, and findings those of a run."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector import audit
from inspector.machines.hardware import CHIPS
from inspector.prediction.memory import fit
from inspector.readers import hlo_text
from inspector.recording.capture import capture_compiled

pytestmark = [pytest.mark.close_to_jax]


@pytest.mark.parametrize("donated", [(), (0,)])
def test_a_text_has_the_memory_and_the_findings_of_its_program(
    tmp_path: Path, donated: tuple[int, ...]
) -> None:
    mesh = jax.make_mesh((4, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

    def struct(*shape: int, spec: P) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(mesh, spec))

    state = {
        "params": {"up": struct(512, 2048, spec=P()), "down": struct(2048, 512, spec=P("model"))},
        "opt_state": {"up": struct(512, 2048, spec=P()), "down": struct(2048, 512, spec=P())},
    }

    def step(state, x):  # type: ignore[no-untyped-def]
        def loss(params):  # type: ignore[no-untyped-def]
            return jnp.mean((jnp.tanh(x @ params["up"]) @ params["down"]) ** 2)

        gradients = jax.grad(loss)(state["params"])
        moments = jax.tree.map(lambda m, g: 0.9 * m + g, state["opt_state"], gradients)
        params = jax.tree.map(lambda p, m: p - 0.1 * m, state["params"], moments)
        return {"params": params, "opt_state": moments}

    lowered = jax.jit(step, donate_argnums=donated).lower(state, struct(64, 512, spec=P("data")))
    compiled = lowered.compile()
    path = tmp_path / "step.hlo"
    path.write_text(compiled.as_text())
    result = hlo_text.read(path, "step.hlo")
    figures, (program,) = compiled.memory_analysis(), result.programs
    assert program.memory is not None
    assert program.memory.arguments == figures.argument_size_in_bytes
    # The compiler also counts the table of the tuple of results.
    assert 0 <= figures.output_size_in_bytes - (program.memory.outputs or 0) < 1024
    assert program.memory.aliased == figures.alias_size_in_bytes
    assert (program.memory.aliased or 0) > 0 if donated else program.memory.aliased == 0
    of_chip = fit(result, CHIPS["v5e"]).need
    least = figures.argument_size_in_bytes + figures.output_size_in_bytes - figures.alias_size_in_bytes
    assert of_chip is not None and least - 1024 <= of_chip.peak_bytes

    def codes(snapshot):  # type: ignore[no-untyped-def]
        return sorted(f.code for f in audit.audited(snapshot).findings if f.level == "warning")

    if " sharding={" not in compiled.as_text():  # JAX 0.12 leaves shardings out of the compiled text
        assert "sharding-unknown" in {finding.code for finding in result.findings}
        return
    # A compiled text lacks the donated inputs that nothing is written over.
    captured = [
        code for code in codes(capture_compiled(compiled, name="step")) if code != "donation-not-used"
    ]
    assert codes(result) == captured != []
