"""Names of a program's live arrays, when it compiles no more."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax import numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from inspector.jax_private import compile_hook as hook
from inspector.recording.live import LiveArrays
from inspector.recording.own_names import argument_paths

MESH = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))


def put(shape: tuple[int, ...], *spec: Any) -> jax.Array:
    return jax.device_put(jnp.zeros(shape), NamedSharding(MESH, PartitionSpec(*spec)))


def recorded(function: Any, *arguments: Any) -> LiveArrays:
    """Return what the recorder knows after a compile ahead of time."""
    lowered = jax.jit(function).lower(*arguments)
    compiled = lowered.compile()
    names = [
        *("model['bias']", "model['kernel']", "optimizer['mu']"),
        *("rngs['key']", "metrics['count']", "metrics['total']"),
    ]
    live = LiveArrays()
    paths = argument_paths(lowered.in_tree, compiled.out_tree, names)
    live.compiled("step", compiled._executable, paths, ())
    return live


def test_a_step_keeps_its_names_with_a_random_key_and_without_its_metrics() -> None:
    def step(model: Any, optimizer: Any, rngs: Any, metrics: Any) -> Any:
        keys = {"key": jax.random.split(rngs["key"], 1)[0]}
        model, optimizer, metrics = jax.tree.map(lambda x: x + 1, (model, optimizer, metrics))
        return (model, optimizer, keys, metrics), model["bias"].sum()

    arguments = (
        {"kernel": put((24, 40), "data", "model"), "bias": put((40,), "model")},
        {"mu": put((24, 40), "model", "data")},
        {"key": jax.device_put(jax.random.key(0), NamedSharding(MESH, PartitionSpec()))},
        {"count": put(()), "total": put(())},
    )
    live = recorded(step, *arguments)
    (model, optimizer, rngs, metrics), loss = jax.jit(step)(*arguments)
    del arguments, metrics, loss
    snapshot, _ = live.captured(())
    named = {array.path: array for array in snapshot.arrays}
    assert named["model/kernel"].shape == model["kernel"].shape
    assert named["model/kernel"].spec == (("data",), ("model",))
    assert named["model/bias"].shape == model["bias"].shape
    assert named["optimizer/mu"].spec == (("model",), ("data",))
    # The key is shown as JAX shows it, not as its data.
    assert named["rngs/key"].shape == rngs["key"].shape == ()
    assert named["rngs/key"].dtype == str(rngs["key"].dtype)
    assert optimizer["mu"].shape == (24, 40)


def train(state: Any, batch: Any, *, scale: Any) -> Any:
    return jax.tree.map(lambda x: x * scale["by"] + batch.sum(), state), batch.mean()


def numbered(tree: Any) -> tuple[tuple[Any, ...], Any]:
    """Return arrays and other leaves with the structure, as Equinox 0.13 splits a pytree."""
    leaves, structure = jax.tree.flatten(tree)
    is_array = [isinstance(leaf, jax.Array) for leaf in leaves]
    arrays = tuple(leaf if one else None for leaf, one in zip(leaves, is_array, strict=True))
    others = tuple(None if one else leaf for leaf, one in zip(leaves, is_array, strict=True))
    return arrays, (others, structure)


def as_filter_jit(*arguments: Any, **keywords: Any) -> tuple[Any, ...]:
    """Return what Equinox's `filter_jit(train, donate="first")` passes to `jax.jit`."""
    parts = [numbered(one) for one in (train, arguments[0], ((*arguments[1:], None), keywords))]
    (fun, first, rest), static = zip(*parts, strict=True)
    return {"first": first}, {"fun": fun, "rest": rest}, static


def as_named_jit(*arguments: Any, **keywords: Any) -> tuple[Any, ...]:
    """Return what Haliax's `named_jit(train, donate_args=(True, False))` passes to `jax.jit`."""

    def without(tree: Any) -> Any:
        return jax.tree.map(lambda _: None, tree)

    def only(arrays: bool) -> Any:
        """Return the arguments with None for the others, as `eqx.partition` does."""
        return jax.tree.map(
            lambda leaf: leaf if isinstance(leaf, jax.Array) == arrays else None,
            (arguments, keywords),
        )

    dynamic, (others, structure) = only(arrays=True), jax.tree.flatten(only(arrays=False))
    (state, batch), keywords = dynamic
    donated = (None, ((state, without(batch)), without(keywords)))
    kept = (None, ((without(state), batch), keywords))
    return donated, kept, (((train,), jax.tree.structure(0)), (tuple(others), structure))


@pytest.mark.parametrize(
    ("module", "passed"),
    [("equinox._jit", as_filter_jit), ("haliax.partitioning", as_named_jit)],
)
def test_a_split_function_has_the_names_of_its_own_parameters(module: str, passed: Any) -> None:
    state = {"step": put(()), "w": put((16, 24), "data", "model")}
    batch, scale = put((48, 8), "data"), {"by": put(())}

    def wrapped(donated: Any, others: Any, static: Any) -> Any:
        del static
        arrays = jax.tree.leaves((donated, others))
        by_shape = {array.shape: array for array in arrays}
        return {"w": by_shape[16, 24] * 2, "batch": by_shape[48, 8].sum(axis=1)}

    arguments = passed(state, batch, scale=scale)
    # The module that jits a function decides how the arguments are split.
    split = hook._split(module, arguments)
    assert split.source == f"train at {__file__}:{train.__code__.co_firstlineno}"
    traced = jax.jit(wrapped, static_argnums=2).trace(*arguments)
    compiled = traced.lower().compile()
    paths = argument_paths(compiled.in_tree, compiled.out_tree, (), split)
    flat = jax.tree.leaves(arguments[:2])
    by_path = dict(zip(paths.inputs, flat, strict=True))
    assert by_path == {
        "state/step": state["step"],
        "state/w": state["w"],
        "batch": batch,
        "scale/by": scale["by"],
    }
    assert {name for name, _ in paths.trees(flat)} >= {"state", "batch", "scale"}
    assert dict(paths.trees(flat))["state"] == state
    assert hook._split("train", arguments) is None


@pytest.mark.parametrize(
    ("module", "passed"),
    [("equinox._jit", as_filter_jit), ("haliax.partitioning", as_named_jit)],
)
def test_a_second_compile_of_a_split_function_names_its_static_leaf(module: str, passed: Any) -> None:
    def static(keep: bool, **more: Any) -> dict[str, Any]:
        arguments = passed({"w": put((8,)), "keep": keep, **more}, put((8, 8)))
        return hook._static_leaves(hook._split(module, arguments), arguments[2])

    def changed(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
        return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}

    assert changed(static(True), static(True)) == set()
    assert changed(static(True), static(False)) == {"state/keep"}
    assert static(True)["state/keep"][0] == "True"
    assert changed(static(True), static(True, mode="eval")) == {
        "state/mode",
        "structure of the arguments",
    }


def test_the_shards_that_a_program_looked_at_are_counted_once() -> None:
    array = put((56, 48), "data", "model")
    shards = [shard.data for shard in array.addressable_shards]
    jax.block_until_ready((array, shards))  # the address of an array that is not ready is not read
    assert sum(live_array.shape == (28, 12) for live_array in jax.live_arrays()) >= len(shards) == 8
    snapshot, _ = LiveArrays().captured(())
    assert [one.shape for one in snapshot.arrays if one.shape in ((56, 48), (28, 12))] == [(56, 48)]
    alone = shards[0]
    del array, shards
    snapshot, _ = LiveArrays().captured(())
    # The array is gone, so its shard is the only array of that memory.
    assert [one.shape for one in snapshot.arrays if one.shape in ((56, 48), (28, 12))] == [alone.shape]


def test_the_memory_of_a_device_is_counted_once() -> None:
    """JAX's addresses of the shards give the sum, after a capture, views, aliases, deletes and donations."""
    live = LiveArrays()
    free = (live.most_alive(), live.most_alive())
    kept = [put((1024, 512), "data", "model") for _ in range(3)] + [put((512, 128), "model")]
    kept += [jax.device_put(kept[0], NamedSharding(Mesh(MESH.devices, ("a", "b")), PartitionSpec("a", "b")))]
    kept += [shard.data for shard in kept[1].addressable_shards]
    gone = [put((1024, 512), "data", "model") for _ in range(2)]
    gone[0].delete()
    kept += [jax.jit(lambda x: x + 1, donate_argnums=0)(gone[1])]
    jax.block_until_ready(kept)
    assert gone[1].is_deleted()
    live.captured((("kept", kept),), final=True)
    counted = live.most_alive()
    memory = {
        (shard.device.id, shard.data.unsafe_buffer_pointer()): shard.data.nbytes
        for array in jax.live_arrays()
        for shard in array.addressable_shards
        if shard.data.nbytes
    }
    totals = [sum(size for (one, _), size in memory.items() if one == device.id) for device in jax.devices()]
    assert free[0] == free[1] < max(totals) == counted
    assert sum(array.nbytes for array in kept) > 8 * counted > 4 * 2**20
    # Copies of arrays that are not ready could be the same memory, and count at most once.
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 300, lambda _, x: jax.numpy.sin(x @ x.T @ x), x))(kept[0])
    alias = jax.device_put(slow, NamedSharding(Mesh(MESH.devices, ("a", "b")), PartitionSpec("a", "b")))
    most = live.most_alive()
    assert most <= max(totals) + slow.nbytes // 8 and alias.shape == slow.shape


def test_an_argument_of_the_first_run_is_no_result() -> None:
    def solve(y: Any) -> Any:
        return y * 2

    argument = put((24, 40), "data", "model")
    lowered = jax.jit(solve).lower(argument)
    compiled = lowered.compile()
    paths = argument_paths(lowered.in_tree, compiled.out_tree, ["y"])
    live = LiveArrays()
    live.compiled("solve", compiled._executable, paths, [("y", argument)])
    compiled(argument)  # nobody keeps the result
    snapshot, names = live.captured((("y", argument),))
    assert snapshot is not None
    assert "y" in [array.path for array in snapshot.arrays]
    assert "y" not in names.outputs.values()
    del argument
    result = compiled(put((24, 40), "data", "model"))
    _, names = live.captured((("y", result),))
    assert names.outputs == {"solve/output": "y"}


@pytest.mark.parametrize("named", [(), ("solved",), ("cast",)])
def test_equal_results_of_two_programs_keep_apart(named: tuple[str, ...]) -> None:
    """A result that a variable names is no reason to give its place to that of another program."""
    live, argument = LiveArrays(), {"b": put((40,)), "w": put((24, 40), "data", "model")}
    programs = {}
    for name, scale in (("solve", 2), ("cast", 3)):
        lowered = jax.jit(lambda x, scale=scale: jax.tree.map(lambda y: y * scale, x)).lower(argument)
        programs[name] = lowered.compile()
        paths = argument_paths(lowered.in_tree, programs[name].out_tree, ["x['b']", "x['w']"])
        live.compiled(name, programs[name]._executable, paths, ())
    solved = programs["solve"](argument)
    held = {"solved": solved, "cast": programs["cast"](solved)}
    snapshot, names = live.captured([("x", argument), *((name, held[name]) for name in named)])
    assert snapshot is not None
    own = {"solved": "solve/output", "cast": "cast/output"}
    expected = {
        f"{path}/{key}": f"{name if name in named else path}/{key}"
        for name, path in own.items()
        for key in "bw"
    }
    assert names.outputs == expected
