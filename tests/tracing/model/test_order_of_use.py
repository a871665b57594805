"""Plans and partitioned programs show the arrays of a model in the order in which its code uses them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import pytest
from jax import numpy as jnp
from jax.extend import core

from inspector.answers import whole_model
from inspector.layout import Layout
from inspector.layout.plan import plan, with_programs
from inspector.partition.partition_layout import partitioned_programs
from inspector.records.snapshot import Snapshot
from inspector.tracing.model import build
from inspector.tracing.model.abstract import abstract_state
from tests.models.language_models import small

pytestmark = pytest.mark.close_to_jax

_PIPELINE = {
    "scan": "true", "axes": "data,stage", "layers": "4", "stages": "2",
    "rules": "stages=stage,vocab=stage,batch=data",
}  # fmt: skip


def first_operands(function: Any, *arguments: Any) -> list[str]:
    """Return the paths of the leaves of the first argument in the order of their first operations."""
    jaxpr = jax.make_jaxpr(function)(*arguments).jaxpr
    leaves = jax.tree_util.tree_leaves_with_path(arguments[0])
    names = [jax.tree_util.keystr(keys, simple=True, separator="/") for keys, _ in leaves]
    order: list[str] = []

    def operands(body: core.Jaxpr, given: dict[Any, str]) -> Iterator[str]:
        for equation in body.eqns:
            inner = [value for value in equation.params.values() if isinstance(value, core.ClosedJaxpr)]
            inner += [value for value in equation.params.values() if isinstance(value, core.Jaxpr)]
            values = [given.get(v) if isinstance(v, core.Var) else None for v in equation.invars]
            if not inner:
                yield from filter(None, values)
            for function in inner:
                own = getattr(function, "jaxpr", function)
                passed = values[len(values) - len(own.invars) :]
                yield from operands(own, {v: n for v, n in zip(own.invars, passed, strict=True) if n})

    for name in operands(jaxpr, dict(zip(jaxpr.invars, names, strict=False))):
        path = name.removesuffix("/value")  # the key of Flax's box
        if path.startswith("params/") and path not in order:
            order.append(path)
    return order


def in_its_code(layout: Layout) -> list[str]:
    """Return the parameters of a layout's model in the order in which inference first has each."""
    model = build.build_model(layout)
    batch = jax.eval_shape(model.batch, jax.random.key(0))
    state = jax.eval_shape(model.init, jax.random.key(0), batch)
    return first_operands(model.apply, state, batch)


def picture(snapshot: Snapshot) -> list[tuple[str, list[tuple[str, ...]]]]:
    model = whole_model.of_snapshot(snapshot)
    assert model is not None
    return [(group.title, [tile.paths for tile in group.tiles]) for group in model.groups]


def before_and_after(layout: Layout) -> tuple[Snapshot, Snapshot]:
    planned = plan(layout, abstract_state(layout))
    return planned, with_programs(planned, partitioned_programs(layout, origins=False))


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("transformer", {"scan": "true"}),
        ("transformer", _PIPELINE),
        ("transformer", {"remat": "full", "tied": "true"}),
        ("moe", {}),
        ("moe", {"scan": "true"}),
    ],
)
def test_the_picture_has_the_order_of_the_code_before_and_after_the_partition(
    name: str, fields: dict[str, str]
) -> None:
    layout = small(name, mesh="4x2", **fields)
    # All stages are one array for JAX, which transposes it before its first use. A stage has the same code as
    # the blocks of a model without stages.
    stages = "stages" in fields
    code = in_its_code(small(name, mesh="4x2", scan="true") if stages else layout)
    rank = {path: n for n, path in enumerate(code)}
    planned, partitioned = before_and_after(layout)
    assert picture(planned) == picture(partitioned)
    groups = [
        [min(rank[path.replace("/stages/", "/")] for path in paths) for paths in tiles]
        for _, tiles in picture(planned)
    ]
    assert sum(len(paths) for _, tiles in picture(planned) for paths in tiles) == len(code)
    assert all(uses == sorted(uses) for uses in groups)
    assert [min(uses) for uses in groups] == sorted(min(uses) for uses in groups)
    # The order is not that of the paths, which a plan had.
    assert [path for _, tiles in picture(planned) for paths in tiles for path in paths] != sorted(code)


def test_caches_and_weights_of_a_decode_step_keep_their_places() -> None:
    planned, partitioned = before_and_after(small("transformer", mesh="4x2", cache="32", scan="true"))
    assert picture(planned) == picture(partitioned)


def test_uses_are_found_in_loops_branches_and_calls() -> None:
    """What is made of one array alone is still that array: its cast, its transpose, its row in a loop."""

    def function(state: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        cast = {name: value.astype(jnp.bfloat16).T for name, value in state.items()}
        x = jax.lax.fori_loop(0, 3, lambda n, x: x @ cast["g"] + n, x)
        x, _ = jax.lax.scan(lambda x, row: (x * row, None), x, cast["f"])
        x = jax.lax.cond(x[0, 0] > 0, lambda x, w: x + w, lambda x, w: x - w, x, cast["e"])
        x = jax.jit(jax.checkpoint(lambda x: jnp.tanh(x @ cast["d"])))(x)
        x = jax.lax.while_loop(lambda x: jnp.all(x < cast["b"][0]), lambda x: x + cast["c"], x)
        return x + cast["a"]

    state = {name: jax.ShapeDtypeStruct((4, 4), jnp.float32) for name in "abcdefgh"}
    x = jax.ShapeDtypeStruct((4, 4), jnp.bfloat16)
    traced = jax.jit(function).trace(state, x)
    paths = tuple(build.argument_paths([("state", state), ("x", x)]))
    assert paths == (*"abcdefgh", "x")
    used = build.first_used(traced.jaxpr, paths)
    # `b` is only in the condition of a loop, which is no use of a weight, and `h` nowhere.
    assert [path for path in used if path != "x"] == [*"gfedca"]
    # Without all paths, the order is unknown.
    assert build.first_used(traced.jaxpr, paths[1:]) == ()
