"""The biases of the MLP with logical axes, against a formula in NumPy and the live arrays of JAX."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from flax import linen as nn

from inspector import layout as layouts
from inspector.compiling.run_layout import run_layout
from inspector.jobs.agreement import disagreements
from inspector.layout import Layout
from inspector.layout.plan import plan
from inspector.partition.partition_layout import partitioned_programs
from inspector.tracing.model import build
from inspector.tracing.model.abstract import abstract_state

BLOCK = "params/DotReluDot_0"


def small(**fields: str) -> Layout:
    return layouts.parse({"model": "logical_mlp", "layers": "1", "depth": "16", **fields}).unwrap()


@pytest.mark.parametrize("bias", [False, True])
def test_a_block_is_its_formula(bias: bool) -> None:
    model = build.build_model(small(mesh="1", axes="data", rules="", bias=str(bias)))
    batch = model.batch(jax.random.key(0))
    state = nn.unbox(model.init(jax.random.key(1), batch))
    block = state.params["DotReluDot_0"]
    assert ("b2" in block, "bias" in block["Dense_0"]) == (bias, bias)
    # Biases start at zero.
    keys = iter(jax.random.split(jax.random.key(2), 4))
    block = jax.tree.map(lambda leaf: jax.random.normal(next(keys), leaf.shape), block)
    z = model.apply(state.replace(params={"DotReluDot_0": block}), batch)
    b1, b2 = (block["Dense_0"]["bias"], block["b2"]) if bias else (0, 0)
    y = np.maximum(batch["x"] @ block["Dense_0"]["kernel"] + b1, 0)
    np.testing.assert_allclose(z, y @ block["W2"] + b2, rtol=1e-5, atol=1e-4)


def test_each_bias_is_sharded_like_the_columns_of_its_matrix() -> None:
    """By default only one of them is replicated, because no rule has the columns of its matrix."""
    layout = small(bias="true", steps="1")
    snapshot = run_layout(layout, lambda *_, **__: None)
    assert disagreements(plan(layout, abstract_state(layout)), snapshot) == ()
    replicated = {}
    for bias, matrix in (("Dense_0/bias", "Dense_0/kernel"), ("b2", "W2")):
        array, of_matrix = (snapshot.array(f"{BLOCK}/{name}") for name in (bias, matrix))
        assert array.spec == of_matrix.spec[1:]
        assert array.logical_axes == of_matrix.logical_axes[1:]
        replicated[bias] = array.facts.fully_replicated
    assert replicated == {"Dense_0/bias": False, "b2": True}


# A mesh axis shards the batch and the columns of the first or of the second matrix.
@pytest.mark.parametrize("rules", ["batch=data,hidden=data", "batch=data,embed=data,hidden=model"])
def test_biases_add_on_explicit_axes(rules: str) -> None:
    layout = small(bias="true", mesh="2x4", axes="data:explicit,model:explicit", rules=rules)
    stages = {program.name: program.stage for program in partitioned_programs(layout, origins=False).programs}
    assert stages == dict.fromkeys(("init", "train_step", "apply"), "partitioned")
