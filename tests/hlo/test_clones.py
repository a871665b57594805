"""Operations that a compiler clones into several fusions count once as work of the program."""

from __future__ import annotations

import math

import jax
import jax.extend
import jax.numpy as jnp
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector import hlo
from inspector.compiled import residuals
from inspector.hlo.analysis import Analysis
from inspector.records.snapshot import Mesh, MeshAxis

pytestmark = pytest.mark.close_to_jax

ARITHMETIC = ("add", "sub", "mul", "div", "max", "integer_pow")


def of_jaxpr(jaxpr: jax.core.Jaxpr) -> int:
    """Return the number of elements that the arithmetic of a jaxpr computes."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name in ARITHMETIC:
            total += math.prod(equation.outvars[0].aval.shape)
        total += sum(map(of_jaxpr, jax.extend.core.jaxprs_in_params(equation.params)))
    return total


def smoothed(u: jax.Array) -> jax.Array:
    for _ in range(6):
        around = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1)
        u = u - 0.2 * (4 * u - around)
    return u


@pytest.mark.first_jax_is_enough  # XLA of JAX 0.12 clones nothing here
def test_the_work_without_clones_is_that_of_the_jaxpr() -> None:
    u = jnp.ones((64, 64))
    compiled = jax.jit(smoothed).lower(u).compile()
    (module,) = hlo.parser.parse(compiled.as_text())
    work = hlo.work.work(module)
    expected = of_jaxpr(jax.make_jaxpr(smoothed)(u).jaxpr)
    assert work.flops == compiled.cost_analysis()["flops"] > 1.5 * expected
    assert work.flops_once == expected


@pytest.mark.first_jax_is_enough
def test_repeated_work_has_no_clones() -> None:
    mesh = jax.make_mesh((2,), ("data",), axis_types=(AxisType.Auto,), devices=jax.devices()[:2])
    whole = NamedSharding(mesh, P())
    u = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=whole)
    (module,) = hlo.parser.parse(jax.jit(smoothed).lower(u).compile().as_text())
    (repeated,) = hlo.work.repeated_work(module, Analysis(module), Mesh((MeshAxis("data", 2),), (0, 1))) or ()
    assert (repeated.devices, repeated.flops) == (2, of_jaxpr(jax.make_jaxpr(smoothed)(u).jaxpr))


@pytest.mark.parametrize("loops", [True, False])
def test_what_a_backward_pass_computes_again_has_no_clones(loops: bool) -> None:
    """Without a loop, the forward pass has equal operations in the same computation, which are no clones."""

    def loss(u: jax.Array) -> jax.Array:
        step = jax.checkpoint(lambda u: smoothed(u) ** 3)
        return jnp.sum(jax.lax.scan(lambda u, _: (step(u), None), u, length=4)[0] if loops else step(step(u)))

    u = jnp.ones((64, 64))
    lowered = jax.jit(jax.grad(loss)).lower(u)
    found = []
    for options in ({}, {"xla_disable_hlo_passes": "fusion"}):
        (module,) = hlo.parser.parse(lowered.compile(compiler_options=options).as_text())
        work, again = hlo.work.work(module), residuals.residuals(Analysis(module))
        assert work.flops_once is not None and again is not None and again.flops
        assert (work.cloned_flops > 0) == (not options)
        found.append((work.flops_once, again.flops))
    if loops:
        assert found[0] == found[1]
    else:  # without fusion, XLA merges some of them with those of the forward pass
        assert found[0] >= found[1]


@pytest.mark.first_jax_is_enough
def test_fusions_that_run_each_other_twice_end() -> None:
    """Sixty of them run the first one 2⁵⁹ times; the search for clones stops, and the FLOPs are counted."""
    fusion = "f32[8] fusion({}), kind=kLoop, calls=f{}"
    text = "HloModule m\n\nf0 {\n p = f32[8] parameter(0)\n ROOT r = f32[8] negate(p)\n}\n"
    for n in range(1, 60):
        once, twice = fusion.format("p", n - 1), fusion.format("a", n - 1)
        text += f"\nf{n} {{\n p = f32[8] parameter(0)\n a = {once}\n ROOT b = {twice}\n}}\n"
    (module,) = hlo.parser.parse(
        f"{text}\nENTRY e {{\n p = f32[8] parameter(0)\n ROOT r = {fusion.format('p', 59)}\n}}\n"
    )
    work = hlo.work.work(module)
    assert Analysis(module).clones == {} and work.cloned_flops == 0
    assert work.flops == 8 * 2**59
