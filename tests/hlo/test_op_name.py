"""Parsing of `op_name` metadata, with names as JAX and XLA write them."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh, PartitionSpec

from inspector.hlo.op_name import PHASES, OpName, parse_op_name

NAMES = {
    "jit(step)/jvp(MLP)/DotReluDot_0/Dense_0/dot_general": (
        "forward", "DotReluDot_0/Dense_0", "dot_general",
    ),
    "jit(step)/transpose(jvp(MLP))/DotReluDot_0/Dense_0/transpose": (
        "backward", "DotReluDot_0/Dense_0", "transpose",
    ),
    "jit(step)/jvp(MLP)/while/body/closed_call/ScanDotReluDot_0/dot_general": (
        "forward", "ScanDotReluDot_0", "dot_general",
    ),
    "jit(step)/jvp(MLP)/while/body/eval_jaxpr/ScanDotReluDot_0/ScanDotReluDot_0/jit(relu)/max": (
        "forward", "ScanDotReluDot_0", "max",
    ),
    "jit(step)/transpose(jvp(MLP))/while/body/jit(dynamic_index_in_dim)/dynamic_slice": (
        "backward", "", "dynamic_slice",
    ),
    "jit(train_step)/transpose(jvp(Net))/jvp(Net)/checkpoint/rematted_computation/Block_0/down/add": (
        "rematerialised", "Block_0/down", "add",
    ),
    "jit(train_step)/transpose(jvp(Net))/jvp(Net)/checkpoint/Block_0/down/reduce_sum": (
        "backward", "Block_0/down", "reduce_sum",
    ),
    "jit(train_step)/transpose(jvp(jvp()))/checkpoint/mul": ("backward", "", "mul"),
    "jit(<lambda>)/vmap(transpose(jvp(Net)))/Block_0/mul": ("backward", "Block_0", "mul"),
    "jit(<lambda>)/vmap(transpose(jvp(Net)))/vmap(jvp(Net))/checkpoint/Block_0/mul": (
        "backward", "Block_0", "mul",
    ),
    "jit(train_step)/jvp()/shard_map/psum_invariant": ("forward", "", "psum_invariant"),
    "jit(train_step)/jvp(...k,k->...k)/dot_general": ("forward", "", "dot_general"),
    "jit(train_step)/jvp()/cond/branch_1_fun/cos": ("forward", "", "cos"),
    "jit(step)/jit(_where)/select_n": ("unknown", "", "select_n"),
    "jit(decode_step)/shard_map/psum": ("unknown", "", "psum"),
    "jit(eval_step)/reduce_sum": ("unknown", "", "reduce_sum"),
    "jit(transpose)/mul": ("unknown", "", "mul"),
    "jit(train_step)/optimizer/mul": ("unknown", "optimizer", "mul"),
    "jit(train_step)/Net/Dense_0/dot_general": ("unknown", "Dense_0", "dot_general"),
    "jit(apply)/MLP/DotReluDot_0/dot_general": ("unknown", "DotReluDot_0", "dot_general"),
    "jit(init)/MLP/Dense_0/jit(_truncated_normal)/erf": ("unknown", "Dense_0", "erf"),
    "jit(init)/MLP/Dense_0/jit(_threefry_fold_in)/Dense.__call__/add": ("unknown", "Dense_0", "add"),
    # A module that calls a method of its own is one module.
    "jit(step)/jvp(MLP)/block_0/attention/attention.product/bsm,mnh->bsnh/dot_general": (
        "forward", "block_0/attention", "dot_general",
    ),
    "jit(step)/jvp(MLP)/embed.attend/dot_general": ("forward", "embed", "dot_general"),
    # `jax.linear_transpose` transposes what nothing differentiated.
    "jit(adjoint)/transpose()/dot_general": ("unknown", "", "dot_general"),
    "jit(step)/transpose(vmap(jvp(Net)))/Block_0/mul": ("backward", "Block_0", "mul"),
    "jit(condf)/cond/branch_0_fun/dot_general": ("unknown", "", "dot_general"),
    "checkpoint/rematted_computation/reduce_sum": ("rematerialised", "", "reduce_sum"),
    "state.params['W2'].value": ("unknown", "", ""),
    "broadcast.10": ("unknown", "", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_name_as_jax_writes_it(name: str) -> None:
    assert parse_op_name(name) == (OpName(*NAMES[name]),)


def test_missing_name() -> None:
    assert parse_op_name(None) == parse_op_name("") == (OpName("unknown", "", ""),)


def test_merged_names() -> None:
    joined = (
        "jit(step)/(transpose(jvp(MLP))/Block_0/Dense_0/dot_general:"
        "transpose(jvp(MLP))/Block_0/dot_general:jvp()/reduce_sum)"
    )
    assert parse_op_name(joined) == (
        OpName("backward", "Block_0/Dense_0", "dot_general"),
        OpName("backward", "Block_0", "dot_general"),
        OpName("forward", "", "reduce_sum"),
    )
    inside = "jit(step)/transpose(jvp(MLP))/while/body/Block_0/(Dense_0/dot_general:dot_general)"
    assert {(place.phase, place.module) for place in parse_op_name(inside)} == {
        ("backward", "Block_0"),
        ("backward", "Block_0/Dense_0"),
    }


@given(st.text(st.sampled_from("()/:ab.,->jit jvp"), max_size=200) | st.text(max_size=80))
def test_arbitrary_text(name: str) -> None:
    places = parse_op_name(name)
    assert places and all(place.phase in PHASES for place in places)


@pytest.mark.parametrize(
    "name",
    ["(" * 5000 + "a:b" + ")" * 5000, "a/" * 50_000, "(a:b)/" * 3000, "jit(" * 3000 + ")" * 3000],
    ids=["brackets", "slashes", "doubling", "calls"],
)
def test_hostile_names_terminate(name: str) -> None:
    assert {place.phase for place in parse_op_name(name)} <= set(PHASES)


class Block(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, None]:
        return nn.Dense(16, name="down")(nn.gelu(nn.Dense(16)(x))), None


class Net(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        remat = nn.remat(Block, prevent_cse=False)
        scan = nn.scan(remat, length=3, variable_axes={"params": 0}, split_rngs={"params": True})
        x, _ = scan(name="layers")(x)
        x, _ = remat()(x)
        x, _ = Block()(x)
        return x


@jax.custom_vjp
def own_rule(x: jax.Array) -> jax.Array:
    return x * jnp.sin(x)


own_rule.defvjp(lambda x: (own_rule(x), x), lambda x, g: (g * jnp.cos(x),))


@pytest.mark.nightly
def test_matrix_products_have_the_path_of_their_kernel() -> None:
    """Compile scan, remat, vmap, shard_map and a custom derivative."""
    net, x = Net(), jnp.ones((8, 16))
    params = net.init(jax.random.key(0), x)
    mesh = Mesh(np.array(jax.devices()[:8]), ("data",))

    def loss(params: dict, x: jax.Array) -> jax.Array:
        y = jax.vmap(own_rule)(net.apply(params, x))
        summed = jax.shard_map(
            lambda block: jax.lax.psum(jnp.sin(block), "data"),
            mesh=mesh, in_specs=PartitionSpec("data"), out_specs=PartitionSpec(),
        )  # fmt: skip
        return (summed(y) ** 2).sum()

    def train_step(params: dict, x: jax.Array) -> dict:
        return jax.tree.map(lambda p, g: p - jnp.sqrt(g), params, jax.grad(loss)(params, x))

    text = jax.jit(train_step).lower(params, x).compile().as_text()
    places = [place for name in set(re.findall(r'op_name="([^"]*)"', text)) for place in parse_op_name(name)]
    kernels = {
        jax.tree_util.keystr(path[1:-1], simple=True, separator="/")
        for path, _ in jax.tree_util.tree_leaves_with_path(params)
    }
    assert len(kernels) == 6
    for phase in ("forward", "backward"):
        products = {p.module for p in places if p.primitive == "dot_general" and p.phase == phase}
        assert products == kernels
    recomputed = {p.module for p in places if p.phase == "rematerialised" and p.primitive == "dot_general"}
    assert recomputed and recomputed <= {path for path in kernels if not path.startswith("Block_0")}
    assert {p.phase for p in places if p.primitive == "sqrt"} == {"unknown"}
