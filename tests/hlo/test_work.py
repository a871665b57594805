"""FLOPs and bytes match XLA's cost analysis, unrolled loops and closed forms."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector import hlo
from inspector import layout as layouts
from inspector.hlo.flops import _Dimension, _positions
from inspector.hlo.work import work
from inspector.records import typed_json
from inspector.records.snapshot import Work
from inspector.text.errors import InvalidInput
from inspector.tracing.model.build import build_model, make_mesh, named_sharding, state_shardings, tracing
from tests.hlo import given
from tests.hlo.test_hostile_text import PIECES, mutated
from tests.hlo.test_loops import PLAIN

pytestmark = pytest.mark.close_to_jax

DEVICES = np.array(jax.devices()[:8])
UNKNOWN = Work(None, None, None)


def array(*shape: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def of_text(text: str) -> Work:
    (module,) = hlo.parser.parse(text)
    return work(module)


def lowered_work(lowered: Any) -> Work:
    """Return the work of the program before any optimization."""
    return of_text(lowered.as_text(dialect="hlo"))


def matmul(work: Work) -> float:
    assert work.matmul is not None
    return sum(matmul_flops.flops for matmul_flops in work.matmul)


def near(expected: float) -> Any:
    """Compare with a tolerance, because XLA adds in float32."""
    return pytest.approx(expected, rel=1e-6)


X, W, B = array(64, 128), array(128, 256), array(256, 64)
IMAGE, FILTERS = array(2, 3, 17, 16), array(8, 3, 3, 3)


def mlp(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    return jax.nn.relu(x @ w + 1) @ b


def convolved(x: jax.Array, filters: jax.Array, **options: Any) -> jax.Array:
    return lax.conv_general_dilated(x, filters, **options)


def pooled(x: jax.Array, **options: Any) -> jax.Array:
    return lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (2, 2), "VALID", **options)


INT8 = {"preferred_element_type": jnp.int32}
# The last entry says whether XLA defines bytes as `work` does.
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], bool]] = {
    "dot": (jnp.dot, (X, W), True),
    "dot of a vector": (jnp.dot, (X, array(128)), True),
    "dot of bfloat16": (
        jnp.dot, (array(64, 128, dtype=jnp.bfloat16), array(128, 32, dtype=jnp.bfloat16)), True
    ),
    "dot of int8": (
        lambda a, b: lax.dot_general(a, b, (((1,), (0,)), ((), ())), **INT8),
        (array(64, 64, dtype=jnp.int8), array(64, 64, dtype=jnp.int8)), True,
    ),
    "dot of complex": (jnp.dot, (array(64, 64, dtype=jnp.complex64),) * 2, True),
    "batched dot": (
        partial(jnp.einsum, "bij,bjk->bik"), (array(4, 64, 128), array(4, 128, 32)), True
    ),
    "ragged dot": (
        lax.ragged_dot, (array(64, 32), array(4, 32, 16), array(4, dtype=jnp.int32)), False
    ),
    "mlp": (mlp, (X, W, B), True),
    "gradient of an mlp": (jax.grad(lambda *a: jnp.tanh(mlp(*a)).sum(), (1, 2)), (X, W, B), False),
    "recomputation": (
        jax.grad(lambda w, x: jax.checkpoint(lambda w, x: jnp.tanh(jnp.tanh(x @ w) @ w))(w, x).sum()),
        (array(64, 64), array(64, 64)), True,
    ),
    "convolution": (
        partial(convolved, window_strides=(1, 1), padding="SAME"), (IMAGE, FILTERS), True
    ),
    "strided convolution": (
        partial(convolved, window_strides=(2, 2), padding="VALID"), (IMAGE, FILTERS), True
    ),
    "grouped convolution": (
        partial(convolved, window_strides=(1, 1), padding="SAME", feature_group_count=3),
        (IMAGE, array(9, 1, 3, 3)), True,
    ),
    "gradients of a strided convolution": (
        jax.grad(
            lambda *a: convolved(*a, window_strides=(2, 2), padding="VALID").sum() ** 2, (0, 1)
        ),
        (IMAGE, FILTERS), False,
    ),
    "softmax": (jax.nn.softmax, (X,), True),
    "gelu": (jax.nn.gelu, (X,), True),
    "layer norm": (
        lambda x: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5),
        (X,), True,
    ),
    "arithmetic": (lambda x: jnp.where(x > 0, x**2.5 + x % 3, jnp.clip(-x, 0, 1)), (X,), True),
    "integers": (lambda x: (x * 3 + 1).sum(0), (array(64, 128, dtype=jnp.int32),), True),
    "argmax": (lambda x: x.argmax(-1), (X,), False),
    "gather": (lambda t, i: t[i], (array(1000, 64), array(32, dtype=jnp.int32)), False),
    "gradient of a gather": (
        jax.grad(lambda t, i: (t[i] ** 2).sum()),
        (array(1000, 64), array(32, dtype=jnp.int32)), False,
    ),
    "dynamic slice": (
        lambda t, i: lax.dynamic_slice_in_dim(t, i, 1, 0) * 2,
        (array(1000, 64), array(dtype=jnp.int32)), True,
    ),
    "dynamic update": (
        lambda t, u, i: lax.dynamic_update_slice_in_dim(t, u * 2, i, 0),
        (array(1000, 64), array(1, 64), array(dtype=jnp.int32)), True,
    ),
    "sort": (partial(jnp.sort, axis=-1), (X,), True),
    "cumulative sum": (partial(jnp.cumsum, axis=-1), (X,), True),
    "pooling": (pooled, (X,), True),
    "gradient of pooling": (jax.grad(lambda x: pooled(x).sum()), (X,), False),
    "fft": (lambda x: jnp.abs(jnp.fft.fft(x)), (X,), True),
    "triangular solve": (
        partial(lax.linalg.triangular_solve, left_side=True), (array(64, 64), array(64, 32)), False
    ),
}  # fmt: skip


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_without_loops_matches_xla(name: str) -> None:
    function, arguments, same_bytes = PROGRAMS[name]
    lowered = jax.jit(function).lower(*arguments)
    executable = lowered.compile()
    (module,) = hlo.parser.parse(executable.as_text())
    opcodes = {i.opcode for c in module.computations for i in c.instructions}
    theirs, ours = executable.cost_analysis(), work(module)
    if not opcodes & {"while", "conditional", "custom-call"}:
        assert ours.flops == near(theirs.get("flops", 0))
        if same_bytes:
            assert ours.bytes_accessed == near(theirs["bytes accessed"])
    # Before optimization nothing is fused.
    written = lowered.as_text(dialect="hlo")
    if " while(" not in written and " custom-call(" not in written:
        assert of_text(written).flops == near(lowered.cost_analysis().get("flops", 0))


@given.each_source
def test_modules_match_xla(source: str) -> None:
    hlo_of_jaxlib = pytest.importorskip("jaxlib._hlo")
    jaxlib = pytest.importorskip("jaxlib._jax")
    client, compared = jax.devices()[0].client, 0
    for case in given.MODULES[source]():
        try:
            theirs = hlo_of_jaxlib.hlo_module_from_text(case["module"])
            (ours,) = hlo.parser.parse(case["module"])
        except (InvalidInput, RuntimeError, ValueError):
            continue
        every = [i for c in ours.computations for i in c.instructions]
        # XLA infers missing shapes.
        if any(i.shape_text is None for i in every):
            continue
        if {i.opcode for i in every} & {"while", "conditional", "custom-call"}:
            continue
        analysis = jaxlib.hlo_module_cost_analysis(client, theirs)
        assert work(ours).flops == near(analysis.get("flops", 0)), case["module"]
        compared += 1
    assert compared > (10 if source == "own" else 100)


sizes = st.integers(1, 5)


@st.composite
def dots(draw: st.DrawFn) -> tuple[Any, Any, Any, str, int]:
    """Draw the operands of a dot, its dimension numbers, their type, and its multiply-adds."""
    batch, contracted, left, right = (draw(st.lists(sizes, max_size=2)) for _ in range(4))
    shuffled = random.Random(draw(st.integers(0, 2**16)))

    def operand(free: list[int]) -> tuple[list[int], list[int], list[int]]:
        dimensions = [("b", n) for n in range(len(batch))]
        dimensions += [("c", n) for n in range(len(contracted))]
        dimensions += [("f", n) for n in range(len(free))]
        shuffled.shuffle(dimensions)
        length = {"b": batch, "c": contracted, "f": free}
        shape = [length[kind][number] for kind, number in dimensions]
        return (
            shape,
            [dimensions.index(("c", n)) for n in range(len(contracted))],
            [dimensions.index(("b", n)) for n in range(len(batch))],
        )

    (lhs, c1, b1), (rhs, c2, b2) = operand(left), operand(right)
    dtype = draw(st.sampled_from(["float32", "bfloat16", "float16"]))
    total = math.prod([*batch, *contracted, *left, *right])
    return lhs, rhs, ((c1, c2), (b1, b2)), dtype, total


@for_all(dots())
def test_dot(drawn: Any) -> None:
    lhs, rhs, numbers, dtype, multiply_adds = drawn
    lowered = jax.jit(partial(lax.dot_general, dimension_numbers=numbers)).lower(
        array(*lhs, dtype=dtype), array(*rhs, dtype=dtype)
    )
    work = lowered_work(lowered)
    assert work.flops == 2 * multiply_adds == lowered.cost_analysis()["flops"]
    (product,) = work.matmul
    assert product.flops == 2 * multiply_adds
    assert product.dtype == {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}[dtype]


@for_all(
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.integers(1, 3),
    st.tuples(st.integers(0, 5), st.integers(0, 5)),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([1, 2]),
    st.sampled_from([1, 2]),
)
def test_convolution_matches_xla(
    image, kernel, stride, pad, base, window, feature_groups, batch_groups
) -> None:
    if feature_groups > 1:
        batch_groups = 1
    reach = [(k - 1) * window + 1 for k in kernel]
    spread = [(i - 1) * base + 1 + sum(pad) for i in image]
    if any(r > s for r, s in zip(reach, spread, strict=True)):
        return
    function = partial(
        convolved,
        window_strides=(stride, 1),
        padding=(pad, pad),
        lhs_dilation=(base, base),
        rhs_dilation=(window, window),
        feature_group_count=feature_groups,
        batch_group_count=batch_groups,
    )
    lowered = jax.jit(function).lower(array(2, 4, *image), array(6, 4 // feature_groups, *kernel))
    expected = lowered.cost_analysis().get("flops", 0)
    work = lowered_work(lowered)
    assert matmul(work) == work.flops == expected


@for_all(*(st.integers(1, 12) for _ in range(6)), st.integers(-4, 14))
def test_convolution_positions_match_brute_force(inputs, kernel, outputs, stride, base, window, low) -> None:
    met = sum(
        at % base == 0 and 0 <= at // base < inputs
        for k, o in itertools.product(range(kernel), range(outputs))
        for at in [o * stride + k * window - low]
    )
    along = _Dimension(kernel, stride, low, 0, base, window)
    assert _positions(inputs, kernel, outputs, along) == met


LAYERS = 12


def layer(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.tanh(x @ w)


def scanned(x: jax.Array, ws: jax.Array) -> jax.Array:
    return lax.scan(lambda c, w: (layer(c, w), None), x, ws)[0]


def unrolled(x: jax.Array, ws: jax.Array) -> jax.Array:
    for w in ws:
        x = layer(x, w)
    return x


def compiled_work(function: Callable[..., Any], *arguments: Any) -> Work:
    return of_text(jax.jit(function).lower(*arguments).compile().as_text())


H, WS = array(64, 128), array(LAYERS, 128, 128)
LAYER = 2 * 64 * 128 * 128


@pytest.mark.parametrize("count", [compiled_work, lambda f, *a: lowered_work(jax.jit(f).lower(*a))])
def test_scan_equals_unrolled_program(count: Callable[..., Work]) -> None:
    loop, flat = count(scanned, H, WS), count(unrolled, H, WS)
    assert matmul(loop) == matmul(flat) == LAYERS * LAYER
    # The rest counts the iterations and checks the limit.
    assert 0 <= loop.flops - flat.flops <= 4 * LAYERS + 4


def test_gradient_of_scan_equals_unrolled_program() -> None:
    gradients = [jax.grad(lambda x, ws, f=f: f(x, ws).sum(), (0, 1)) for f in (scanned, unrolled)]
    loop, flat = (compiled_work(gradient, H, WS) for gradient in gradients)
    assert matmul(loop) == matmul(flat) == 3 * LAYERS * LAYER


def test_nested_scans() -> None:
    def outer(x: jax.Array, groups: jax.Array) -> jax.Array:
        return lax.scan(lambda c, ws: (scanned(c, ws), None), x, groups)[0]

    assert matmul(compiled_work(outer, H, array(3, 5, 128, 128))) == 15 * LAYER


def test_stacked_parameters_are_accessed_once() -> None:
    """Bytes grow linearly with the layers. They would grow quadratically if each read the whole stack."""

    def touched(layers: int) -> float:
        step = jax.grad(lambda ws, x: scanned(x, ws).sum())
        return compiled_work(step, array(layers, 128, 128), H).bytes_accessed

    few, more, most = (touched(layers) for layers in (16, 32, 64))
    assert most - more == pytest.approx(2 * (more - few), rel=0.01)
    stack = 64 * 128 * 128 * 4
    assert 3 * stack < most < 32 * stack  # at least 64 times if each iteration read the whole stack


def test_instructions_of_a_loop_count_as_often_as_they_run() -> None:
    few, more, most = (
        lowered_work(jax.jit(scanned).lower(H, array(layers, 128, 128))).instructions
        for layers in (16, 32, 64)
    )
    assert most - more == 2 * (more - few) > 0
    fused = compiled_work(mlp, X, W, B)
    plain = lowered_work(jax.jit(mlp).lower(X, W, B))
    # Two products, the sum with 1, the maximum with 0, and the broadcasts of both numbers.
    assert plain.instructions == 6
    assert 2 <= fused.instructions <= 4


def test_in_place_update() -> None:
    def filled(cache: jax.Array, rows: jax.Array) -> jax.Array:
        def put(cache: jax.Array, row_and_at: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
            row, at = row_and_at
            return lax.dynamic_update_slice(cache, row[None], (at, 0)), None

        return lax.scan(put, cache, (rows, jnp.arange(100)))[0]

    cache, rows = 4096 * 64 * 4, 100 * 64 * 4
    lowered = jax.jit(filled, donate_argnums=0).lower(array(4096, 64), array(100, 64))
    touched = of_text(lowered.compile().as_text()).bytes_accessed
    assert 2 * rows < touched < 3 * cache  # one copy is acceptable


def test_loop_with_dynamic_limit_has_unknown_work() -> None:
    end = array(dtype=jnp.int32)
    w = array(128, 128)
    work = compiled_work(lambda n, x, w: lax.fori_loop(0, n, lambda _, c: layer(c, w), x), end, H, w)
    sizes = [
        shape_dtype_struct.size * shape_dtype_struct.dtype.itemsize for shape_dtype_struct in (end, H, w, H)
    ]
    assert replace(work, parts=()) == replace(UNKNOWN, boundary_bytes=sum(sizes))
    inside = [part for part in work.parts if any(":" not in name for name in part.within)]
    assert [matmul(part) for part in inside if part.matmul] == [LAYER]
    work = compiled_work(lambda n, x, w: lax.fori_loop(0, n, lambda _, c: c + 1, x) @ w, end, H, w)
    assert work.flops is None and work.bytes_accessed is None
    assert matmul(work) == LAYER


def test_branches() -> None:
    def chosen(p: jax.Array, x: jax.Array, w: jax.Array) -> jax.Array:
        return lax.cond(p, lambda: x @ w, lambda: (x @ w) @ w)

    lowered = jax.jit(chosen).lower(array(dtype=jnp.bool_), H, array(128, 128))
    assert matmul(lowered_work(lowered)) == 3 * LAYER


def lowered_train_step(**changes: str) -> Any:
    """Lower the train step of a layout as the producers do."""
    layout = layouts.parse(changes).unwrap()
    model, mesh = build_model(layout), make_mesh(layout)
    with tracing(layout, mesh):
        key = jax.eval_shape(lambda: jax.random.key(0))
        batch = jax.eval_shape(model.batch, key)
        state = jax.eval_shape(model.init, key, batch)
        placed = state_shardings(state, model, layout, mesh)
        rows = {n: named_sharding(a, model, layout, mesh) for n, a in model.batch_axes.items()}
        step = jax.jit(model.step, in_shardings=(placed, rows), out_shardings=(placed, None))
        return step.lower(state, batch)


@pytest.mark.parametrize("sizes", [{}, {"depth": "64", "layers": "2", "batch": "16"}])
def test_train_step_matches_xla(sizes: dict[str, str]) -> None:
    """Sharded over both axes, each device computes an eighth of the products."""
    lowered = lowered_train_step(**sizes)
    executable = lowered.compile()
    work, ideal = of_text(executable.as_text()), lowered_work(lowered)
    assert work.flops == near(executable.cost_analysis()["flops"])
    assert 8 * matmul(work) == matmul(ideal)
    layout = layouts.parse(sizes).unwrap().sizes
    weights = 2 * layout["layers"] * layout["depth"] ** 2
    # Forward, and the gradients by input and weight. The gradient by the batch is unused.
    first = 2 * layout["batch"] * layout["depth"] ** 2
    assert matmul(ideal) == 6 * layout["batch"] * weights - first


def test_scan_before_and_after_partitioning() -> None:
    sizes = {"depth": "64", "batch": "16"}
    flat, loop = (lowered_train_step(scan=scan, **sizes) for scan in ("false", "true"))
    ideal = matmul(lowered_work(flat))
    # A loop also computes the gradient by the batch, because all iterations are equal.
    assert ideal <= matmul(lowered_work(loop)) <= ideal * 1.1
    assert 8 * matmul(of_text(loop.compile().as_text())) == pytest.approx(ideal, rel=0.1)


@pytest.mark.parametrize("layers", [scanned, unrolled])
@pytest.mark.parametrize(("axis", "devices"), [("data", 1), (None, 8)])
def test_replication_repeats_work(layers: Callable[..., Any], axis: str | None, devices: int) -> None:
    """All devices together compute the ideal if the batch is split, and eight times that otherwise."""
    mesh = Mesh(DEVICES, ("data",))

    def sharded(shape: tuple[int, ...], *spec: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    gradient = jax.grad(lambda ws, x: (layers(x, ws) ** 2).sum())
    lowered = jax.jit(gradient).lower(sharded((LAYERS, 64, 64)), sharded((128, 64), axis))
    ideal, work = lowered_work(lowered), of_text(lowered.compile().as_text())
    assert 8 * matmul(work) == devices * matmul(ideal)


# sequences, layers, embedding, hidden, heads, key-value heads, head length, vocabulary
LLAMA = {
    "hlo_llama31_405b_bf16_16x8.hlo": (1, 126, 16384, 53248, 128, 8, 128, 128256),
    "hlo_llama31_70b_bf16_16x8.hlo": (2, 80, 8192, 28672, 64, 8, 128, 128256),
}


@given.needs_cases
@pytest.mark.parametrize("name", LLAMA)
def test_train_step_of_llama(name: str) -> None:
    """Each of 128 devices has different sequences and gathers the whole weights."""
    sequences, layers, embed, hidden, heads, shared, head, vocabulary = LLAMA[name]
    attention = embed * head * (2 * heads + 2 * shared)
    mlp = 3 * embed * hidden
    tokens = sequences * 8192
    # Forward, both gradients, and all but the last product rematerialised. Attention is a custom call.
    # The embedding is a product with one-hot rows, without a gradient by the input.
    weights = layers * (4 * (attention + mlp) - embed * hidden) + 5 * vocabulary * embed
    work = of_text(given.text(name))
    (product,) = work.matmul
    assert (product.dtype, product.flops) == ("bf16", 2 * tokens * weights)
    parameters = layers * (attention + mlp) + 2 * vocabulary * embed
    assert 1.2 < product.flops / (6 * parameters * tokens) < 4 / 3
    assert 1 <= work.flops / product.flops < 1.01
    # At least four products per layer read the weights, in addition to activations.
    assert 4 * 2 * parameters < work.bytes_accessed < 400 * 2 * parameters


@pytest.mark.parametrize("name", given.TRUNCATED)
def test_truncated_text_has_no_work(name: str) -> None:
    assert of_text(given.text(name)) == UNKNOWN


GEMM = """
ENTRY e {{
  a = bf16[64,128] parameter(0)
  b = f32[128,32] parameter(1)
  ROOT c = {result} custom-call(a, b), custom_call_target="{target}"{more}
}}
"""
CONFIG = (
    ', backend_config={"gemm_backend_config":{"dot_dimension_numbers":'
    '{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}'
)


@pytest.mark.parametrize(
    ("target", "result", "more", "flops"),
    [
        ("__cublas$gemm", "(f32[64,32], s8[4194304])", CONFIG, 2 * 64 * 128 * 32),
        ("__cublas$lt$matmul", "f32[64,32]", CONFIG, 2 * 64 * 128 * 32),
        ("__cublas$lt$matmul$f8", "f32[64,32]", CONFIG, 2 * 64 * 128 * 32),
        ("__cublas$gemm", "f32[64,32]", ', backend_config="' + CONFIG[17:].replace('"', '\\"') + '"',
         2 * 64 * 128 * 32),
        ("__cublas$gemm", "f32[64,32]", "", None),
        ("__onednn$matmul", "f32[64,32]", "", 2 * 64 * 128 * 32),
    ],
)  # fmt: skip
def test_library_call_counts_as_dot(target, result, more, flops) -> None:
    work = of_text(GEMM.format(target=target, result=result, more=more))
    assert work.flops == flops
    if flops is None:
        assert work.matmul is None
    else:
        (product,) = work.matmul
        assert (product.dtype, product.flops) == ("f32", flops)


@pytest.mark.parametrize("target", ["__cublas$gemm", "__cudnn$convForward", "__onednn$matmul"])
def test_the_workspace_of_a_library_call_is_not_moved(target) -> None:
    work = of_text(GEMM.format(target=target, result="(f32[64,32], s8[33554432])", more=CONFIG))
    assert work.bytes_accessed == 64 * 128 * 2 + 128 * 32 * 4 + 64 * 32 * 4
    work = of_text(GEMM.format(target="other", result="(f32[64,32], s8[33554432])", more=""))
    assert work.bytes_accessed == 64 * 128 * 2 + 128 * 32 * 4 + 64 * 32 * 4 + 33554432


RAGGED = """
ENTRY e {{
  a = f32[64,32] parameter(0)
  b = f32[{rhs}] parameter(1)
  g = s32[4] parameter(2)
  ROOT c = f32[{result}] ragged-dot(a, b, g), lhs_contracting_dims={{{left}}},
    rhs_contracting_dims={{{right}}}, lhs_ragged_dims={{0}}{more}
}}
"""


@pytest.mark.parametrize(
    ("rhs", "result", "left", "right", "more"),
    [
        ("4,32,16", "64,16", 1, 1, ", rhs_group_dims={0}"),
        ("64,16", "4,32,16", 0, 0, ""),
    ],
)
def test_ragged_dot(rhs, result, left, right, more) -> None:
    text = RAGGED.format(rhs=rhs, result=result, left=left, right=right, more=more)
    assert of_text(text).flops == 2 * 64 * 32 * 16


ASYNCHRONOUS = """
add { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT s = f32[] add(x, y) }
wrapped { p = f32[100] parameter(0)  ROOT n = f32[100] negate(p) }
ENTRY e {
  a = f32[100] parameter(0)
  g = (f32[100], f32[400]) all-gather-start(a), dimensions={0}
  h = f32[400] all-gather-done(g)
  r = f32[100] all-reduce-start(a), to_apply=add
  s = f32[100] all-reduce-done(r)
  c = (f32[100], f32[100], u32[]) copy-start(s)
  d = f32[100] copy-done(c)
  i = ((f32[100]), f32[100]) async-start(d), calls=wrapped
  j = f32[100] async-done(i)
  ROOT t = (f32[400], f32[100]) tuple(h, j)
}
"""


def test_asynchronous_pair_counts_once() -> None:
    work = of_text(ASYNCHRONOUS)
    assert work.flops == 100 + 100  # the reduction and the called computation
    assert work.bytes_accessed == 4 * (500 + 200 + 200 + 200)


CUT = """
fused {{
  p = bf16[12,100,100] parameter(0)
  i = s32[] parameter(1)
  z = s32[] constant(0)
  {way}
  s = bf16[1,100,100] dynamic-slice(q, i, z, z), dynamic_slice_sizes={{1,100,100}}
  ROOT r = bf16[1,100,100] negate(s)
}}
ENTRY e {{
  p = bf16[12,100,100] parameter(0)
  i = s32[] parameter(1)
  ROOT f = bf16[1,100,100] fusion(p, i), kind=kLoop, calls=fused
}}
"""


@pytest.mark.parametrize(
    ("way", "read"),
    [
        ("q = bf16[12,100,100] bitcast(p)", 1),
        ("q = bf16[12,100,100] copy(p)", 1),
        ("q = bf16[12,100,100] negate(p)", 12),
    ],
)
def test_fusion_reads_only_slices(way: str, read: int) -> None:
    layer = 100 * 100 * 2
    assert of_text(CUT.format(way=way)).bytes_accessed == read * layer + 4 + layer


def test_code_that_never_runs() -> None:
    loop = {"t": "s32", "step": 1, "op": "add", "sides": "i, n", "direction": "LT"}
    never = of_text(PLAIN.format(start=9, limit=9, **loop))
    often = of_text(PLAIN.format(start=0, limit=9, **loop))
    assert (never.flops, often.flops) == (1, 10 + 9 * 9)  # comparisons; additions and the reduction
    assert never.bytes_accessed < often.bytes_accessed


def test_applied_computation_is_unknown() -> None:
    """The executions of a computation that a reduction applies are unknown, also for another caller."""
    text = """
add {{ x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT s = f32[] add(x, y) }}
ENTRY e {{
  a = f32[100] parameter(0)
  z = f32[] constant(0)
  r = f32[] reduce(a, z), dimensions={{0}}, to_apply=add
  ROOT c = f32[] {last}
}}
"""
    assert of_text(text.format(last="negate(r)")).flops == 99 + 1
    assert of_text(text.format(last="call(r, z), to_apply=add")).flops is None


def test_huge_numbers() -> None:
    def levels(count: int) -> str:
        lines = ["c0 { p = f32[1000000] parameter(0)  ROOT n = f32[1000000] negate(p) }"]
        for n in range(1, count):
            lines.append(
                f"c{n} {{ p = f32[1000000] parameter(0)\n a = f32[1000000] call(p), to_apply=c{n - 1}\n"
                f" ROOT b = f32[1000000] call(a), to_apply=c{n - 1} }}"
            )
        return "\n".join(lines)

    assert of_text(levels(50)).flops == 1e6 * 2**49
    huge = "9" * 19
    text = f"e {{ p = f32[{huge},{huge}] parameter(0)\n ROOT n = f32[{huge},{huge}] negate(p) }}"
    assert of_text(text).flops == pytest.approx(1e38)
    beyond = f"f32[{','.join([huge] * 20)}]"
    work = of_text(f"e {{ p = {beyond} parameter(0)\n ROOT n = {beyond} negate(p) }}")
    assert work.flops is None and work.bytes_accessed is None


def read(text: str) -> None:
    """Count the work of a text, which may only raise InvalidInput."""
    try:
        works = [work(module) for module in hlo.parser.parse(text)]
    except InvalidInput:
        return
    for each in works:
        assert typed_json.decode(Work, typed_json.encode(each)) == each
        for figure in (each.flops, each.bytes_accessed):
            assert figure is None or (math.isfinite(figure) and figure >= 0)


COUNTED = [
    GEMM.format(target="__cublas$gemm", result="f32[64,32]", more=CONFIG),
    RAGGED.format(rhs="64,16", result="4,32,16", left=0, right=0, more=""),
    ASYNCHRONOUS,
    CUT.format(way="q = bf16[12,100,100] bitcast(p)"),
]
OPERATIONS = [
    "dot(", "convolution(", "reduce(", "reduce-window(", "scatter(", "sort(", "fft(", "map(",
    "select-and-scatter(", "fusion(", "dynamic-update-slice(", "gather(", "cholesky(",
    "triangular-solve(", "custom-call(", "lhs_contracting_dims={9}", "window={size=3x3 stride=0x1}",
    "window={size=999999999999x1 pad=-5_9x0_0 lhs_dilate=7x1}", "dim_labels=b01f_01io->b01f",
    "feature_group_count=0", "calls=fused", "to_apply=add", "f32[0]", "f32[?,<=8]", "fft_length={0}",
]  # fmt: skip


@st.composite
def operations(draw: st.DrawFn) -> str:
    """Draw a program in which an operation, shape or attribute is replaced."""
    text = draw(st.one_of(st.sampled_from(COUNTED), mutated()))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(OPERATIONS + PIECES)) + text[at:]
    for _ in range(draw(st.integers(0, 3))):
        old = draw(st.sampled_from(["negate(", "dynamic-slice(", "custom-call(", "call(", "[100]"]))
        text = text.replace(old, draw(st.sampled_from(OPERATIONS)), 1)
    return text


@for_all(operations())
def test_mutated_program(text: str) -> None:
    read(text)


WHAT = [
    "dot", "convolution", "reduce", "reduce-window", "scatter", "sort", "fft", "map", "cholesky",
    "select-and-scatter", "triangular-solve", "ragged-dot", "all-reduce", "gather", "fusion",
    "dynamic-slice", "dynamic-update-slice", "all-gather-start", "copy-start", "custom-call", "add",
]  # fmt: skip
SHAPES = [
    "f32[]",
    "f32[2,3]",
    "f32[0]",
    "bf16[?]",
    "f32[<=4]",
    "u9[2]",
    "(f32[2], s4[3])",
    "()",
    "",
]
ATTRIBUTES = [
    ", to_apply=a", ", calls=a", ", calls=e", ", lhs_contracting_dims={0}", ", lhs_ragged_dims={0}",
    ", window={size=2x2}", ", window={size=2 stride=2 pad=1_1 lhs_dilate=2 rhs_dilate=3}",
    ", dim_labels=bf0_oi0->bf0", ", dim_labels=b_o->", ", select=a, scatter=a", ", fft_length={4}",
    ', custom_call_target="__cublas$gemm"', ', custom_call_target="__cudnn$convForward"',
    ', custom_call_target="__onednn$matmul"', ', x={"lhs_contracting_dimensions":["0","7"]}',
]  # fmt: skip


@for_all(
    st.sampled_from(WHAT),
    st.lists(st.sampled_from(SHAPES), min_size=4, max_size=4),
    st.lists(st.sampled_from(["p", "q", "r", "f32[4] p", "nothing"]), max_size=4),
    st.lists(st.sampled_from(ATTRIBUTES), max_size=4),
)
def test_arbitrary_operation(what, shapes, operands, attributes) -> None:
    head = "".join(f"{name} = {shape} parameter(0)\n" for name, shape in zip("pqr", shapes, strict=False))
    last = f"ROOT x = {shapes[3]} {what}({', '.join(operands)}){''.join(attributes)}\n"
    read(f"a {{\n{head}{last}}}\nENTRY e {{\n{head}{last}}}\n")


def test_unknown_custom_calls_are_named() -> None:
    text = """HloModule m

never {
  p = f32[4]{0} parameter(0)
  ROOT c = f32[4]{0} custom-call(p), custom_call_target="never_called"
}

ENTRY e {
  p = f32[4]{0} parameter(0)
  held = f32[4]{0} custom-call(p), custom_call_target="Sharding", sharding={replicated}
  attention = f32[4]{0} custom-call(held), custom_call_target="flash_attention"
  nameless = f32[4]{0} custom-call(attention)
  product = f32[4,4]{1,0} custom-call(nameless, nameless), custom_call_target="__onednn$matmul"
  joined = f32[8]{0} custom-call(held, held), custom_call_target="ConcatBitcast"
  ROOT r = f32[4]{0} add(nameless, attention)
}
"""
    (module,) = hlo.parser.parse(text)
    assert work(module).not_counted == ("a custom call without a target", "flash_attention")


def test_models_have_no_unknown_custom_calls() -> None:
    function = jax.jit(lambda x: jnp.tanh(x @ x).sum())
    (module,) = hlo.parser.parse(function.lower(jnp.ones((64, 64))).compile().as_text())
    assert work(module).not_counted == ()
