"""Work that devices repeat, and the work of all devices, against numbers that follow from the shapes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector import audit
from inspector.compiled import program_text
from inspector.recording.inspected import inspect
from inspector.records.snapshot import Finding, Snapshot

pytestmark = pytest.mark.close_to_jax

ROWS, WIDTH = 128, 64
PRODUCT = 2 * ROWS * WIDTH * WIDTH  # FLOPs of x @ w
MESH = Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("s", "t"), axis_types=(AxisType.Auto,) * 2)
mapped = partial(jax.shard_map, mesh=MESH)


def sharded(shape: tuple[int, ...], *axes: Any, dtype: Any = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, P(*axes)))


W, X, X_BOTH = (
    sharded((WIDTH, WIDTH)),
    sharded((ROWS, WIDTH), "s"),
    sharded((ROWS, WIDTH), ("s", "t")),
)


def product(w: Any, x: Any) -> Any:
    return x @ w


def rows_on_all(w: Any, x: Any) -> Any:
    return mapped(product, in_specs=(P(), P(("s", "t"))), out_specs=P(("s", "t")))(w, x)


def rows_on_s(w: Any, x: Any) -> Any:
    return mapped(product, in_specs=(P(), P("s")), out_specs=P("s"))(w, x)


def in_a_scan(w: Any, x: Any) -> Any:
    return jax.lax.scan(lambda rows, _: (rows_on_all(w, rows), None), x, None, length=3)[0]


def nested(w: Any, x: Any) -> Any:
    def outer(w: Any, x: Any) -> Any:
        inner = jax.shard_map(product, in_specs=(P(), P("t")), out_specs=P("t"), axis_names={"t"})
        return inner(w, inner(w, x))

    specs = P(), P("s")
    return mapped(outer, in_specs=specs, out_specs=P("s"), axis_names={"s"})(w, x)


def by_sample(w: Any, x: Any) -> Any:
    def body(w: Any, rows: Any) -> Any:
        return jax.vmap(lambda row: jnp.tanh(w @ row).sum())(rows)

    return mapped(body, in_specs=(P(), P(("s", "t"))), out_specs=P(("s", "t")))(w, x)


def gathered_rows(w: Any, x: Any) -> Any:
    def body(w: Any, rows: Any) -> Any:
        return jax.lax.all_gather(rows, ("s", "t"), tiled=True) @ w

    return mapped(body, in_specs=(P(), P(("s", "t"))), out_specs=P(), check_vma=False)(w, x)


def of_one_device(w: Any, x: Any) -> Any:
    def body(w: Any, rows: Any) -> Any:
        first = jax.lax.axis_index("t") == 0
        return jax.lax.cond(first, lambda: rows @ w, lambda: rows)

    return mapped(body, in_specs=(P(), P("s")), out_specs=P(("s", "t")), check_vma=False)(w, x)


# The program, its arguments, the FLOPs of matrix products of all devices, and how often all of them are done.
PROGRAMS = {
    "jit, rows on all devices": (product, (W, X_BOTH), PRODUCT, 1),
    "jit, rows on s": (product, (W, X), PRODUCT, 2),
    "shard_map, rows on all devices": (rows_on_all, (W, X_BOTH), PRODUCT, 1),
    "shard_map, rows on s": (rows_on_s, (W, X), PRODUCT, 2),
    "in a scan": (in_a_scan, (W, X_BOTH), 3 * PRODUCT, 1),
    "nested": (nested, (W, X_BOTH), 2 * PRODUCT, 1),
    "each sample": (by_sample, (W, X_BOTH), PRODUCT, 1),
    "rows are gathered": (gathered_rows, (W, X_BOTH), PRODUCT, 8),
    # Which devices compute is unknown, so that no work is called repeated.
    "a branch by device": (of_one_device, (W, X), 2 * PRODUCT, 1),
}


def repeated(snapshot: Snapshot) -> list[Finding]:
    return [finding for finding in snapshot.findings if finding.code == "repeated-work"]


def done(snapshot: Snapshot) -> float:
    (program,) = snapshot.programs
    return 8 * sum(part.flops for part in program.work.matmul)


def ideal(snapshot: Snapshot) -> float:
    (program,) = snapshot.programs
    return sum(part.flops for part in program.ideal.matmul)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_work_of_all_devices_is_that_of_the_program(name: str) -> None:
    function, arguments, written, times = PROGRAMS[name]
    snapshot = inspect(jax.jit(function), *arguments)
    assert ideal(snapshot) == written
    assert done(snapshot) == times * written
    findings = repeated(snapshot)
    assert len(findings) == (times > 1)
    if findings:
        assert findings[0].ratio == pytest.approx(times, rel=0.05)
        assert set(findings[0].axes) == ({"s", "t"} if times == 8 else {"t"})


@pytest.mark.parametrize("inside", [True, False])
def test_a_branch_may_never_be_taken(inside: bool) -> None:
    """Two products on all devices: both count, or only the one before the branch, as a lower bound."""

    def step(w: Any, x: Any, takes: Any) -> Any:
        first = x @ w
        second = lambda rows: jnp.tanh(rows) @ w  # noqa: E731
        return jax.lax.cond(takes, second, lambda rows: rows, first) if inside else second(first)

    whole = sharded((ROWS, WIDTH))
    (program,) = inspect(jax.jit(step), W, whole, jax.ShapeDtypeStruct((), "bool")).programs
    counted = sum(part.flops for part in program.work.repeated)
    assert counted == pytest.approx(PRODUCT if inside else 2 * PRODUCT, rel=0.05)


@pytest.mark.parametrize("again", [False, True])
def test_most_of_the_work_is_over_half_of_it(again: bool) -> None:
    """A QR factorization is two custom calls with equal FLOPs; a second `geqrf` makes it most of them."""

    def step(x: Any) -> Any:
        q, r = jnp.linalg.qr(x)
        return q, r + jnp.linalg.qr(2 * x, mode="r") if again else r

    whole = jax.ShapeDtypeStruct((2048, 16), "float32", sharding=NamedSharding(MESH, P()))
    (program,) = inspect(jax.jit(step), whole).programs
    named = {part.op_name.rsplit("/", 1)[-1] for part in program.work.repeated if part.op_name}
    assert named == ({"geqrf"} if again else set())


def test_a_pmap_repeats_nothing() -> None:
    """Data parallelism: each device has rows of its own, and the mean of the gradients is one sum."""

    def step(w: Any, x: Any) -> Any:
        grad = jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)
        return w - 0.1 * jax.lax.pmean(grad, "i")

    devices = jax.devices()[:8]
    rows = jnp.ones((8, 16, WIDTH))
    snapshot = inspect(jax.pmap(step, axis_name="i", devices=devices), jnp.ones((8, WIDTH, WIDTH)), rows)
    assert ideal(snapshot) == done(snapshot) == 8 * 2 * (2 * 16 * WIDTH * WIDTH)
    assert repeated(snapshot) == []


@pytest.mark.parametrize(
    ("function", "along", "elsewhere"),
    [
        (lambda x: jnp.fft.fft(x, axis=0).real, P("s"), P(None, ("s", "t"))),
        (lambda x: jnp.sort(x, axis=0), P("s"), P(None, ("s", "t"))),
        (lambda x: jnp.sin(x) * 2 + x * x - x, P("s"), P(("s", "t"))),
    ],
    ids=["fft", "sort", "elementwise"],
)
def test_other_work_than_products_counts(function: Any, along: P, elsewhere: P) -> None:
    """XLA computes an FFT on every device, and says so only in its log. A `shard_map` does not."""
    on = NamedSharding(MESH, along)
    (finding,) = repeated(inspect(jax.jit(function, out_shardings=on), sharded((64, 128), *along)))
    assert finding.ratio is not None
    assert finding.ratio > 1.9
    assert "t" in finding.axes
    own = jax.jit(mapped(function, in_specs=elsewhere, out_specs=elsewhere))
    assert not repeated(inspect(own, sharded((64, 128), *elsewhere)))


def test_an_import_of_the_lowered_text_counts_alike() -> None:
    """GSPMD writes other custom calls than Shardy, and an old `pmap` a number of replicas."""
    lowered = jax.jit(rows_on_s).lower(W, X)
    shardy = program_text.ideal_work(lowered.as_text(dialect="hlo"))
    jax.config.update("jax_use_shardy_partitioner", False)
    try:
        gspmd = program_text.ideal_work(
            jax.jit(lambda w, x: rows_on_s(w, x)).lower(W, X).as_text(dialect="hlo")
        )
    finally:
        jax.config.update("jax_use_shardy_partitioner", True)
    assert shardy is not None
    assert gspmd is not None
    assert shardy.matmul == gspmd.matmul
    assert shardy.flops == gspmd.flops == PRODUCT
    replicated = (
        "HloModule pmap, replica_count=8\n\nENTRY e {\n  w = f32[4,4]{1,0} parameter(0)\n"
        "  x = f32[4,4]{1,0} parameter(1)\n  ROOT d = f32[4,4]{1,0} dot(x, w), "
        "lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}\n"
    )
    old = program_text.ideal_work(replicated)
    assert old is not None
    assert old.flops == 8 * 2 * 4**3


def test_programs_that_repeat_work_along_the_same_axes_have_one_note() -> None:
    snapshot = inspect(jax.jit(product), W, X)
    (program,), (alone,) = snapshot.programs, repeated(snapshot)
    other = replace(program, name="evaluate", fingerprint="of other instructions")
    both = replace(snapshot, programs=(program, other), findings=())
    (finding,) = repeated(audit.audited(both))
    assert alone.message in finding.message and "evaluate" in finding.message
    assert (finding.axes, finding.ratio) == (alone.axes, alone.ratio)
