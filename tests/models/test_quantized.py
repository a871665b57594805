"""Quantized products against exact ones, and the FLOPs of their types counted by hand."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from inspector.model.built_in.quantized import FORMATS, quantized_product
from inspector.model.built_in.remat_names import QUANTIZED
from inspector.partition.partition_layout import partitioned_programs
from tests.models.language_models import built, small

# Products of the layers of the models: contracted dimensions first, last, and several, and a batch dimension.
PRODUCTS = [
    ("bsm,mnh->bsnh", (2, 6, 8), (8, 3, 4)),
    ("bsnh,nhm->bsm", (2, 6, 3, 4), (3, 4, 8)),
    ("bsm,mh->bsh", (2, 6, 8), (8, 5)),
    ("ebcm,emh->ebch", (3, 2, 4, 8), (3, 8, 5)),
]


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("subscripts", "left", "right"), PRODUCTS)
def test_a_product_and_its_gradients_are_near_the_exact_ones(name, subscripts, left, right, keeps) -> None:
    x = jax.random.normal(jax.random.key(0), left)
    weight = jax.random.normal(jax.random.key(1), right)
    exact, pull_exact = jax.vjp(lambda *both: jnp.einsum(subscripts, *both), x, weight)
    array, pull = jax.vjp(lambda *both: quantized_product(subscripts, name, None, keeps, *both), x, weight)
    incoming = jax.random.normal(jax.random.key(2), exact.shape)
    # e5m2 rounds to 2 bits after the first one, int8 to 1/254 of the largest element.
    for ours, theirs in zip((array, *pull(incoming)), (exact, *pull_exact(incoming)), strict=True):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        error = np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
        assert 0 < error < (0.1 if name == "fp8" else 0.02)


def test_small_integers_are_multiplied_exactly() -> None:
    x = jnp.array([[127.0, -3.0, 50.0]])
    weight = jnp.array([[127.0], [2.0], [-1.0]])
    assert quantized_product("sm,mh->sh", "int8", None, False, x, weight) == pytest.approx(127 * 127 - 6 - 50)


@pytest.mark.parametrize(("name", "dtypes"), [("fp8", {"f8e4m3fn", "f8e5m2"}), ("int8", {"s8"})])
def test_flops_of_a_step_by_operand_type(name: str, dtypes: set[str]) -> None:
    """Products with weights of the blocks have 8 bits; logits and attention keep the type of the model."""
    layout = small(
        *("transformer",), quantization=name, dtype="bfloat16", scan="true", mesh="2", axes="data", rules=""
    )
    (step,) = partitioned_programs(layout, origins=False, only=("train_step",)).programs
    batch, seq, layers, embed, mlp, heads, kv, width, vocab = 8, 16, 2, 32, 64, 4, 2, 8, 64
    weights = layers * embed * (2 * heads * width + 2 * kv * width + 3 * mlp)
    scores = layers * 2 * heads * seq * width  # queries and keys, weights and values; for each token
    assert step.work is not None and step.work.matmul is not None
    flops: dict[bool, float] = {True: 0.0, False: 0.0}
    for product in step.work.matmul:
        assert product.dtype in {*dtypes, "bf16", "f32"}
        flops[product.dtype in dtypes] += product.flops
    tokens = batch * seq  # nothing is sharded
    assert flops[True] == 3 * 2 * tokens * weights
    assert flops[False] == 3 * 2 * tokens * (embed * vocab + scores)


@pytest.mark.nightly
@pytest.mark.parametrize("model", ["transformer", "moe"])
def test_a_quantized_model_learns(model: str) -> None:
    result, state, batch = built(model, quantization="fp8", optimizer="sgd")
    step = jax.jit(result.step)
    after, first = step(state, batch)
    assert step(after, batch)[1] < first


def test_a_policy_keeps_quantized_operands() -> None:
    """They have 8 bits. The policy without them quantizes again."""
    kept = {}
    for remat in ("minimal", "minimal_with_quantization"):
        layout = small("transformer", quantization="int8", scan="true", remat=remat, mesh="2", axes="data")
        (step,) = partitioned_programs(layout, origins=False, only=("train_step",)).programs
        assert step.residuals is not None
        kept[remat] = sum(row.bytes for row in step.residuals.kept if row.shape.startswith("s8"))
    assert kept["minimal"] == 0 < kept["minimal_with_quantization"]


@pytest.mark.parametrize("name", FORMATS)
def test_gradients_of_kept_operands_are_those_of_operands_that_are_computed_again(name: str) -> None:
    x, weight = (jax.random.normal(jax.random.key(size), (8, size)) for size in (8, 4))

    def gradients(keeps: bool) -> tuple[jax.Array, jax.Array]:
        def loss(x: jax.Array, weight: jax.Array) -> jax.Array:
            return jnp.sum(quantized_product("sm,mh->sh", name, None, keeps, x, weight) ** 2)

        policy = jax.checkpoint_policies.save_only_these_names(QUANTIZED)
        return jax.grad(jax.checkpoint(loss, policy=policy), (0, 1))(x, weight)

    for kept, again in zip(gradients(True), gradients(False), strict=True):
        np.testing.assert_array_equal(kept, again)
