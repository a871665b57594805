"""Arrays of a user's program have the group of their role, whatever their names are."""

from __future__ import annotations

import jax
import numpy as np
import optax
import pytest
from jax import numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector import audit
from inspector.answers import memory
from inspector.recording.capture import capture, capture_compiled
from inspector.recording.inspected import inspect
from inspector.records.snapshot import Snapshot
from inspector.sharding.array_groups import ARRAY_GROUPS

DEPTH = 64


@pytest.fixture(scope="module")
def mesh() -> jax.sharding.Mesh:
    return jax.make_mesh((4,), ("fsdp",), axis_types=(AxisType.Auto,))


def placed(mesh, shape, *spec, dtype="float32"):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))


def model(mesh):
    return {
        "first": {"kernel": placed(mesh, (DEPTH, DEPTH)), "bias": placed(mesh, (DEPTH,))},
        "last": {"kernel": placed(mesh, (DEPTH, DEPTH), "fsdp", None)},
    }


def forward(weights, x):
    h = jnp.tanh(x @ weights["first"]["kernel"] + weights["first"]["bias"])
    return jnp.tanh(h @ weights["last"]["kernel"])


def by_hand(state, x):
    gradients = jax.grad(lambda weights: jnp.mean(forward(weights, x) ** 2))(state["net"])
    a = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, state["a"], gradients)
    b = jax.tree.map(lambda b, g: 0.9 * b + 0.1 * g * g, state["b"], gradients)
    net = jax.tree.map(lambda p, a, b: p - a / jnp.sqrt(b + 1e-8), state["net"], a, b)
    return {"net": net, "a": a, "b": b, "step": state["step"] + 1}


def groups(snapshot: Snapshot) -> dict[str, str]:
    return {
        array.path.partition("/input/")[2]: array.group
        for array in snapshot.arrays
        if "/input/" in array.path
    }


def test_roles_in_a_train_step_follow_from_use_and_not_from_names(mesh) -> None:
    state = {name: model(mesh) for name in ("net", "a", "b")} | {"step": placed(mesh, (), dtype="int32")}
    x = placed(mesh, (16, DEPTH), "fsdp", None)
    result = groups(inspect(by_hand, state, x))
    expected = {"state/step": "other", "x": "batch"}
    for name, group in (("net", "params"), ("a", "opt_state"), ("b", "opt_state")):
        for path in ("first/kernel", "first/bias", "last/kernel"):
            expected[f"state/{name}/{path}"] = group
    assert result == expected


def test_the_same_roles_are_read_from_the_text_alone(mesh, tmp_path) -> None:
    from inspector.readers import hlo_text

    state = {name: model(mesh) for name in ("net", "a", "b")} | {"step": placed(mesh, (), dtype="int32")}
    x = placed(mesh, (16, DEPTH), "fsdp", None)
    file = tmp_path / "step.txt"
    file.write_text(jax.jit(by_hand).lower(state, x).compile().as_text())
    result = groups(hlo_text.read(file, "step.txt"))
    assert result == groups(inspect(by_hand, state, x))


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("key", ["params", "model", "state", "variables", "anything"])
def test_a_replicated_weight_is_found_under_any_name(mesh, key: str) -> None:
    """jax-ml/jax#26946: the audit must not depend on how the user calls the parameters."""
    weights = {
        "embed": placed(mesh, (4096, DEPTH)),
        "up": placed(mesh, (DEPTH, 4 * DEPTH), None, "fsdp"),
    }

    def apply(held, x):
        w = held[key]
        return jnp.tanh(x @ w["up"]) @ w["up"].T @ w["embed"].T

    x = placed(mesh, (16, DEPTH), "fsdp", None)
    snapshot = inspect(apply, {key: weights}, x)
    (finding,) = [one for one in snapshot.findings if "replicated" in one.code]
    assert finding.array == f"apply/input/held/{key}/embed"
    whole = 4096 * DEPTH * 4
    assert finding.bytes == whole - whole // mesh.size
    assert finding.code == "replicated-parameter"


def test_a_large_array_without_a_role_is_found_too(mesh) -> None:
    snapshot = inspect(lambda table, x: x * table.sum(), placed(mesh, (4096, DEPTH)), placed(mesh, (8,)))
    (finding,) = [one for one in snapshot.findings if one.code == "replicated-array"]
    assert finding.bytes == 4096 * DEPTH * 4 * 3 // 4


def test_a_batch_is_not_called_a_weight(mesh) -> None:
    """x meets computed values in the backward pass, as weights do."""

    def step(w, x):
        return w - jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)

    result = groups(inspect(step, placed(mesh, (DEPTH, DEPTH)), placed(mesh, (16, DEPTH), "fsdp")))
    assert result == {"w": "params", "x": "batch"}


def test_positions_that_move_along_a_force_are_no_weights_of_a_step_that_trains(mesh) -> None:
    def step(state, x):
        gradients = jax.grad(lambda weights: jnp.mean(forward(weights, x) ** 2))(state["net"])
        net = jax.tree.map(lambda p, g: p - 0.1 * g, state["net"], gradients)
        at = state["at"]
        return {"net": net, "at": at + 0.01 * jnp.tanh(at @ at.T) @ at}

    state = {"net": model(mesh), "at": placed(mesh, (16, DEPTH), "fsdp")}
    result = groups(inspect(step, state, placed(mesh, (16, DEPTH), "fsdp")))
    assert result["state/at"] == "other" and result["state/net/last/kernel"] == "params"


def test_the_weight_of_a_stage_is_proved_by_its_backward_pass_alone(mesh) -> None:
    """A stage of two jitted functions: only the second one trains the weight that both take."""

    def ahead(w, x):
        return jnp.tanh(x @ w)

    def back(w, x, upstream):
        (change,) = jax.vjp(lambda w: ahead(w, x), w)[1](upstream)
        return w - 0.1 * change

    w, x = placed(mesh, (DEPTH, DEPTH)), placed(mesh, (16, DEPTH), "fsdp")

    def back_to_last(w, x, upstream):
        change, before = jax.vjp(ahead, w, x)[1](upstream)
        return w - 0.1 * change, before

    # The results of the stage before are data only if their gradient is not returned.
    for function, group, data in (
        (ahead, "other", False),
        (back, "params", True),
        (back_to_last, "params", False),
    ):
        snapshot = inspect(function, w, x, *([x] if function is not ahead else []))
        assert groups(snapshot)["w"] == group
        assert (groups(snapshot)["x"] == "batch") == data
        said = str(memory.section(snapshot, None))
        assert (ARRAY_GROUPS["params"] in said) == (group == "params") and ARRAY_GROUPS["other"] in said
    assert "unknown" in ARRAY_GROUPS["other"]


def test_without_proof_a_role_is_unknown(mesh) -> None:
    """One product of two arguments does not say which one is the weight."""
    snapshot = inspect(lambda a, b: a @ b, placed(mesh, (DEPTH, DEPTH)), placed(mesh, (DEPTH, DEPTH)))
    assert set(groups(snapshot).values()) == {"other"}


@pytest.mark.parametrize("kind", ["slice", "scatter"])
def test_a_cache_is_no_train_state(mesh, kind: str) -> None:
    def decode(kept, q, new, at):
        if kind == "slice":
            kept = jax.lax.dynamic_update_slice(kept, new[:, None], (0, at[0], 0))
        else:
            kept = kept.at[jnp.arange(8), at].set(new)
        return jnp.einsum("bh,bsh->bs", q, kept), kept

    rows = placed(mesh, (8, DEPTH), "fsdp")
    arguments = (
        placed(mesh, (8, 128, DEPTH), "fsdp"),
        rows,
        rows,
        placed(mesh, (8,), dtype="int32"),
    )
    result = groups(inspect(jax.jit(decode, donate_argnums=0), *arguments))
    # `q` meets the updated cache, and a cache can also get rows and indices that are no data: no proof.
    assert result == {"kept": "cache", "q": "other", "new": "other", "at": "other"}


def test_a_matrix_that_gets_blocks_at_fixed_places_is_no_cache(mesh) -> None:
    """Elimination by blocks writes into its argument, at the same places in each run."""

    def eliminate(a):
        left = a[DEPTH // 2 :, : DEPTH // 2] @ jnp.tanh(a[: DEPTH // 2, : DEPTH // 2])
        return a.at[DEPTH // 2 :, : DEPTH // 2].set(left)

    result = inspect(jax.jit(eliminate, donate_argnums=0), placed(mesh, (DEPTH, DEPTH), "fsdp"))
    assert groups(result) == {"a": "other"}


def test_assignments_that_a_step_swaps_in_place_are_no_caches(mesh) -> None:
    """Annealing writes other data at places that are data, but multiplies the array with nothing."""

    def swap(orders, costs, distances, pair):
        rows, (first, second) = jnp.arange(8), pair
        swapped = orders.at[rows, first].set(orders[rows, second])
        swapped = swapped.at[rows, second].set(orders[rows, first])
        lengths = distances[swapped, jnp.roll(swapped, 1, 1)].sum(1)
        better = lengths < costs
        return jnp.where(better[:, None], swapped, orders), jnp.where(better, lengths, costs)

    arguments = (
        placed(mesh, (8, 128), "fsdp", dtype="int32"),
        placed(mesh, (8,), "fsdp"),
        placed(mesh, (128, 128)),
        placed(mesh, (2, 8), dtype="int32"),
    )
    result = groups(inspect(jax.jit(swap, donate_argnums=0), *arguments))
    assert result == dict.fromkeys(("orders", "costs", "distances", "pair"), "other")


def test_a_table_that_a_scatter_adds_to_is_no_cache(mesh) -> None:
    def update(table, at, gradient):
        return table.at[at].add(-0.1 * gradient)

    arguments = (
        placed(mesh, (4096, DEPTH)), placed(mesh, (8,), dtype="int32"), placed(mesh, (8, DEPTH)),
    )  # fmt: skip
    assert groups(inspect(update, *arguments))["table"] == "other"


def test_trees_that_mirror_each_other_have_no_role_by_their_names(mesh) -> None:
    sharding = NamedSharding(mesh, P())
    weights = jax.device_put({"w": jnp.ones((8, 8)), "b": jnp.ones(8)}, sharding)
    moments = {"w": weights["w"] + 1, "b": weights["b"] + 1}
    for state in ({"model": weights, "mu": moments, "nu": moments}, {"mu": weights, "log_var": weights}):
        assert {array.group for array in capture(state).arrays} == {"other"}
    # Two trees that mirror the moments: which one has the parameters is unknown.
    twice = capture({"model": weights, "ema": weights, "opt": optax.adam(1e-3).init(weights)})
    assert {array.group for array in twice.arrays if not array.path.startswith("opt")} == {"other"}


def test_given_groups_are_kept(mesh) -> None:
    weights = {"model": {"w": jnp.ones((8, 8))}, "mu": {"w": jnp.ones((8, 8))}}
    snapshot = capture(weights, group="batch")
    assert {array.group for array in snapshot.arrays} == {"batch"}


def test_one_array_per_tree_is_matched_by_its_shape(mesh) -> None:
    """A parameter that is one array has no key that its moment could share."""
    w = jax.device_put(jnp.ones((256, 64)), NamedSharding(mesh, P("fsdp", None)))
    for state in (w + 1, optax.adam(1e-3).init(w), {"momentum": w + 1}):
        state = jax.tree.map(lambda leaf: jax.device_put(leaf, w.sharding) if leaf.ndim else leaf, state)
        snapshot = audit.audited(capture({"params": w, "opt_state": state}))
        assert "optimizer-not-following" not in [one.code for one in snapshot.findings]
        whole = jax.device_put(state, NamedSharding(mesh, P()))
        snapshot = audit.audited(capture({"params": w, "opt_state": whole}))
        (finding,) = [one for one in snapshot.findings if one.code == "optimizer-not-following"]
        moments = sum(leaf.nbytes for leaf in jax.tree.leaves(whole) if np.ndim(leaf))
        assert finding.bytes == moments * 3 // 4


def test_one_key_on_one_device_silences_nothing(mesh) -> None:
    wide = jax.make_mesh((2, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    place = NamedSharding(wide, P("data", None))
    params = {f"w{n}": jax.device_put(jnp.ones((256, 256)), place) for n in range(4)}
    without = audit.audited(capture({"params": params}))
    key = jax.device_put(jax.random.PRNGKey(0), jax.devices()[0])
    with_key = audit.audited(capture({"params": params, "key": key}))
    for snapshot in (without, with_key):
        (finding,) = [one for one in snapshot.findings if one.code == "state-repeated-over-axis"]
        assert finding.bytes == sum(param.nbytes for param in params.values()) // 2 // 2
        assert finding.count == 4


def test_an_array_on_another_mesh_is_named_as_not_checked(mesh) -> None:
    wide = jax.make_mesh((2, 2), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    params = {
        f"w{n}": jax.device_put(jnp.ones((256, 256)), NamedSharding(wide, P("data", None))) for n in range(4)
    }
    other = jax.device_put(jnp.ones((256, 256)), NamedSharding(mesh, P("fsdp")))
    snapshot = audit.audited(capture({"params": params | {"other": other}}))
    codes = [one.code for one in snapshot.findings]
    assert "unused-mesh-axis" not in codes and "state-repeated-over-axis" in codes
    (finding,) = [one for one in snapshot.findings if one.code == "state-repeated-over-axis"]
    assert "1 array without a PartitionSpec" in finding.message


def test_compiled_programs_have_roles(mesh) -> None:
    state = {name: model(mesh) for name in ("net", "a", "b")} | {"step": placed(mesh, (), dtype="int32")}
    compiled = jax.jit(by_hand).lower(state, placed(mesh, (16, DEPTH), "fsdp")).compile()
    result = groups(capture_compiled(compiled))
    assert sorted(result.values()).count("params") == 3
    assert sorted(result.values()).count("opt_state") == 6


@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_an_average_of_weights_is_neither_a_moment_nor_a_weight(mesh, decay: float) -> None:
    def step(state, x):
        gradients = jax.grad(lambda weights: jnp.mean(forward(weights, x) ** 2))(state["net"])
        gradients = jax.tree.map(lambda g, p: g + decay * p if decay else g, gradients, state["net"])
        a = jax.tree.map(lambda a, g: 0.9 * a + g, state["a"], gradients)
        net = jax.tree.map(lambda p, a: p - 0.1 * a, state["net"], a)
        slow = jax.tree.map(lambda s, p: 0.99 * s + 0.01 * p, state["slow"], net)
        return {"net": net, "a": a, "slow": slow}

    state = {name: model(mesh) for name in ("net", "a", "slow")}
    result = groups(inspect(jax.jit(step), state, placed(mesh, (16, DEPTH), "fsdp", None)))
    roles = {path.split("/")[1]: group for path, group in result.items() if path.startswith("state/")}
    assert roles == {"net": "params", "a": "opt_state", "slow": "other"}


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_the_caches_of_a_loop_over_layers_are_caches(mesh, dtype: str) -> None:
    """The loop writes each layer's new cache into a new stack, and returns it."""

    def decode(weights, cache, x, at):
        def layer(x, own):
            w, old = own
            new = jax.lax.dynamic_update_slice(old, (x @ w).astype(dtype)[:, None], (0, at, 0))
            scores = jnp.einsum("bd,bsd->bs", x, new.astype(x.dtype))
            return x + jnp.einsum("bs,bsd->bd", jax.nn.softmax(scores), new.astype(x.dtype)), new

        return jax.lax.scan(layer, x, (weights, cache))

    arrays = placed(mesh, (2, DEPTH, DEPTH)), placed(mesh, (2, 8, 16, DEPTH), None, "fsdp", dtype=dtype)
    step = jax.jit(decode, donate_argnums=1)
    result = groups(inspect(step, *arrays, placed(mesh, (8, DEPTH), "fsdp"), placed(mesh, (), dtype="int32")))
    assert result["cache"] == "cache"


def test_only_what_gradients_train_is_a_weight_and_only_what_it_multiplies_is_data(mesh) -> None:
    """The gradients of JAX decide: those of the average, the statistics and the frozen weights are zero."""
    state = {
        "net": {"w": placed(mesh, (DEPTH, DEPTH)), "bias": placed(mesh, (DEPTH,)), "scale": placed(mesh, ())},
        "teacher": {"w": placed(mesh, (DEPTH, DEPTH)), "bias": placed(mesh, (DEPTH,))},
    }
    state["net"]["mean"] = placed(mesh, (DEPTH,))
    state["trace"] = dict(state["net"])
    del state["trace"]["mean"]
    frozen = {"int": placed(mesh, (DEPTH, DEPTH), "fsdp", dtype="int8"), "w": placed(mesh, (DEPTH, DEPTH))}
    u = placed(mesh, (DEPTH,))

    def loss(state, frozen, u, x):
        net, teacher = state["net"], state["teacher"]
        h = jnp.tanh(x @ net["w"] / (u @ net["w"]).sum() + net["bias"]) * net["scale"]
        seen = h.mean(0)
        h = (h - jax.lax.stop_gradient(net["mean"])) @ (frozen["int"].astype("float32") * 1e-3) @ frozen["w"]
        soft = jax.lax.stop_gradient(jnp.tanh(jnp.tanh(x @ teacher["w"] + teacher["bias"]) @ teacher["w"]))
        return jnp.mean((h - soft) ** 2), seen

    def step(state, frozen, u, x):
        gradients, seen = jax.grad(loss, has_aux=True, allow_int=True)(state, frozen, u, x)
        learnt = {key: gradients["net"][key] for key in state["trace"]}
        trace = jax.tree.map(lambda m, g: 0.9 * m + g, state["trace"], learnt)
        net = {key: state["net"][key] - 0.1 * trace[key] for key in trace}
        net["mean"] = 0.9 * state["net"]["mean"] + 0.1 * seen
        teacher = {key: 0.99 * value + 0.01 * net[key] for key, value in state["teacher"].items()}
        return {"net": net, "teacher": teacher, "trace": trace}, net["w"].T @ u

    x = placed(mesh, (16, DEPTH), "fsdp")
    snapshot = inspect(jax.jit(step, donate_argnums=(0, 2)), state, frozen, u, x)
    result = groups(snapshot)
    random = np.random.default_rng(0)
    values = jax.tree.map(
        lambda leaf: jnp.asarray(random.normal(size=leaf.shape) * 9, leaf.dtype), (state, frozen, u, x)
    )
    gradients, _ = jax.grad(loss, has_aux=True)(*values)
    trained = {f"state/net/{key}" for key, leaf in gradients["net"].items() if np.any(leaf)}
    assert not any(map(np.any, jax.tree.leaves(gradients["teacher"])))
    assert {path for path, group in result.items() if group == "params"} == trained
    assert {path for path, group in result.items() if group == "batch"} == {"x"}
    outputs = {a.path: a.group for a in snapshot.arrays if "/output/0/teacher" in a.path}
    assert outputs and set(outputs.values()).isdisjoint({"params", "opt_state"})
    assert {path for path, group in result.items() if group == "opt_state"} == {
        path.replace("net", "trace") for path in trained
    }


def test_the_statistics_of_a_batch_norm_are_no_parameters(mesh) -> None:
    layer = {"w": placed(mesh, (DEPTH, DEPTH))} | {k: placed(mesh, (DEPTH,)) for k in ("mean", "var", "bias")}

    def apply(layers, x):
        for own in layers:
            x = jnp.tanh((x @ own["w"] - own["mean"]) * jax.lax.rsqrt(own["var"] + 1e-5) + own["bias"])
        return x

    result = groups(inspect(apply, [layer] * 3, placed(mesh, (16, DEPTH), "fsdp")))
    parameters = {f"layers/{n}/{key}" for n in range(3) for key in ("w", "bias")}
    assert {path for path, group in result.items() if group == "params"} == parameters


@pytest.mark.parametrize("anchored", [True, False])
def test_a_moment_without_a_parameter_is_compared_with_all_arrays(mesh, anchored: bool) -> None:
    def array(*shape: int) -> jax.Array:
        return jax.device_put(jnp.ones(shape), NamedSharding(mesh, P()))

    state = {"params": {"w": array(4, 128, 256)}, "opt_state": {"trace": array(128, 256)}}
    state |= {"anchor": array(128, 256)} if anchored else {}
    messages = [one.message for one in audit.audited(capture(state)).findings if "trace" in (one.array or "")]
    assert messages
    for message in messages:
        assert ("It has the shape of anchor." in message) is anchored
        assert anchored or "shape" not in message
