"""Arrays of two Snapshots against JAX's own index maps, and properties that every comparison has."""

from __future__ import annotations

import dataclasses
import json

import jax
import numpy as np
import pytest
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding, PartitionSpec

from inspector.compare import difference
from inspector.compare.board import aligned
from inspector.compare.difference.array_differences import ONLY_AFTER, ONLY_BEFORE
from inspector.media import terminal as command_line
from inspector.recording.capture import capture
from inspector.records import snapshot
from inspector.records.snapshot import Array, Mesh, MeshAxis, Program, Snapshot, Spec
from inspector.sharding import placement
from tests.compare.difference.layouts import planned
from tests.figures import samples

SHAPE = (16, 16, 16)


def mesh(**axes: int) -> Mesh:
    size = int(np.prod(list(axes.values())))
    return Mesh(tuple(MeshAxis(name, count) for name, count in axes.items()), tuple(range(size)))


def array(on: Mesh, spec: Spec, path: str = "params/w", shape: tuple[int, ...] = SHAPE) -> Array:
    piece = placement.shard_shape(shape, spec, on)
    size = 4 * int(np.prod(shape))
    return Array(
        path, "params", shape, "float32", spec=spec, shard_shape=piece, bytes=size,
        bytes_per_device=4 * int(np.prod(piece)), replicas=placement.replicas(spec, on),
    )  # fmt: skip


def one(before: tuple[Mesh, Array], after: tuple[Mesh, Array]) -> difference.ArrayDifference:
    snapshots = [samples.snapshot(on, (it,)) for on, it in (before, after)]
    (only,) = difference.arrays(*snapshots)
    return only


@st.composite
def placed(draw: st.DrawFn, names: str = "abcd") -> tuple[Mesh, Array]:
    """A mesh of 16 devices, some of its axes of size 1, and an array split by some of them."""
    sizes = draw(
        st.sampled_from([(16,), (4, 4), (2, 8), (8, 2), (2, 2, 4), (4, 1, 4), (1, 16), (2, 2, 2, 2)])
    )
    chosen = draw(st.permutations(names))[: len(sizes)]
    on = mesh(**dict(zip(chosen, sizes, strict=True)))
    free = draw(st.permutations(chosen))
    cuts = sorted(draw(st.lists(st.integers(0, len(free)), min_size=3, max_size=3)))
    bounds = [0, *cuts]
    spec = tuple(tuple(free[bounds[i] : bounds[i + 1]]) or None for i in range(3))
    return on, array(on, spec)


def jaxs_map(on: Mesh, it: Array) -> dict[int, tuple]:
    """Return the index ranges of each device id from JAX."""
    devices = np.array(jax.devices()[: on.size]).reshape(on.shape)
    named = NamedSharding(jax.sharding.Mesh(devices, on.axis_names), PartitionSpec(*it.spec))
    return {
        device.id: tuple(part.indices(size)[:2] for part, size in zip(index, it.shape, strict=True))
        for device, index in named.devices_indices_map(it.shape).items()
    }


@given(placed(), placed())
def test_placements_are_equal_if_and_only_if_jax_index_maps_are(
    before: tuple[Mesh, Array], after: tuple[Mesh, Array]
) -> None:
    array_difference = one(before, after)
    same = jaxs_map(*before) == jaxs_map(*after)
    assert (array_difference.placement in ("same", "other names")) == same
    assert ("placement" in array_difference.changed) == (not same)
    if same:
        assert not set(array_difference.changed) - {"spec"}  # as many bytes and copies, whatever the names


@given(placed(), placed())
def test_swapping_snapshots_mirrors_the_difference(
    before: tuple[Mesh, Array], after: tuple[Mesh, Array]
) -> None:
    there, back = one(before, after), one(after, before)
    assert there.changed == back.changed and there.placement == back.placement
    assert (there.before, there.split_before) == (back.after, back.split_after)


@given(placed())
def test_nothing_differs_from_itself(it: tuple[Mesh, Array]) -> None:
    array_difference = one(it, it)
    assert array_difference.changed == () and array_difference.placement == "same"


def test_axes_of_size_1_split_nothing() -> None:
    plain, idle = mesh(x=4), mesh(x=4, y=1)
    array_difference = one(
        (plain, array(plain, (("x",), None, None))), (idle, array(idle, (("x",), ("y",), None)))
    )
    assert array_difference.changed == () and array_difference.placement == "same"


def test_other_axis_names_keep_the_placement() -> None:
    old, new = mesh(x=4), mesh(rows=4)
    array_difference = one(
        (old, array(old, (("x",), None, None))), (new, array(new, (("rows",), None, None)))
    )
    assert array_difference.changed == ("spec",) and array_difference.placement == "other names"


def test_devices_in_another_order_hold_other_blocks() -> None:
    on = mesh(x=4)
    turned = dataclasses.replace(on, devices=(3, 2, 1, 0))
    it = array(on, (("x",), None, None))
    assert one((on, it), (turned, it)).changed == ("placement",)
    whole = array(on, (None, None, None))
    assert one((on, whole), (turned, whole)).changed == ()


def test_explicit_shards_are_compared_with_a_spec() -> None:
    on = mesh(x=4)
    it = array(on, (("x",), None, None))
    shards = placement.shards(it, on)
    explicit = dataclasses.replace(it, spec=None, shards=shards)
    assert one((on, it), (on, explicit)).changed == ()
    turned = tuple(dataclasses.replace(shard, device=3 - shard.device) for shard in shards or ())
    array_difference = one((on, it), (on, dataclasses.replace(explicit, shards=turned)))
    assert array_difference.changed == ("placement",) and array_difference.placement == "other"


def test_an_unknown_value_is_no_difference() -> None:
    on = mesh(x=4)
    it = array(on, (("x",), None, None))
    vague = Array("params/w", "params", None, "unknown", spec=(("x",),))
    assert one((on, it), (on, vague)).changed == ()
    other = dataclasses.replace(vague, spec=(None, ("x",)))
    assert one((on, it), (on, other)).changed == ("spec",)
    assert one((on, vague), (on, other)).placement == "unknown"


def test_arrays_of_one_snapshot_are_listed() -> None:
    few, more = planned(), planned(layers="3")
    array_differences = difference.arrays(few, more)
    new = [it for it in array_differences if it.changed == (ONLY_AFTER,)]
    assert {it.path for it in new} == {a.path for a in more.arrays} - {a.path for a in few.arrays}
    back = difference.arrays(more, few)
    assert {it.path for it in back if it.changed == (ONLY_BEFORE,)} == {it.path for it in new}


@pytest.mark.parametrize(
    ("fields", "facts"),
    [
        ({"depth": "128"}, {"shape", "bytes", "bytes per device"}),
        ({"dtype": "bfloat16"}, {"dtype", "bytes", "bytes per device"}),
        ({"mesh": "4x2"}, {"spec", "placement", "bytes per device", "replicas"}),
    ],
)
def test_facts_of_a_kernel(fields: dict[str, str], facts: set[str]) -> None:
    array_differences: dict[str, difference.ArrayDifference] = {
        it.path: it for it in difference.arrays(planned(), planned(**fields))
    }
    assert set(array_differences["params/DotReluDot_0/W2"].changed) == facts


def test_without_a_mesh_no_placement_is_compared() -> None:
    snapshot: Snapshot = planned()
    nowhere = dataclasses.replace(snapshot, mesh=None)
    assert all(it.changed == () for it in difference.arrays(snapshot, nowhere))
    assert {it.placement for it in difference.arrays(snapshot, nowhere)} == {"unknown"}


def test_a_restored_nnx_state_is_compared_with_the_live_one(tmp_path) -> None:
    """A checkpoint of an nnx state has `/value` at the end of paths."""
    with nnx.use_eager_sharding(False):
        state = nnx.state(nnx.Linear(8, 16, rngs=nnx.Rngs(0)))
    live = capture(state)
    restored = capture(nnx.to_pure_dict(state))
    with_values = capture({name: {"value": leaf} for name, leaf in nnx.to_pure_dict(state).items()})
    assert {array.path for array in with_values.arrays} == {"kernel/value", "bias/value"}
    for other in (restored, with_values):
        for pair in ((live, other), (other, live)):
            array_differences = difference.arrays(*aligned(pair))
            assert [
                (array_difference.path, array_difference.changed) for array_difference in array_differences
            ] == [("bias", ()), ("kernel", ())]
    # A path that is already taken stays.
    both = capture({name: jax.numpy.ones(1) for name in ("kernel", "kernel/value")})
    assert aligned([both, live]) == (both, live)
    file = tmp_path / "live.json", tmp_path / "restored.json"
    for path, one in zip(file, (live, with_values), strict=True):
        snapshot.write(one, path)
    out = tmp_path / "compared.json"
    assert command_line.main(["compare", *map(str, file), "-o", str(out)]) == 0
    (compared,) = json.loads(out.read_text())["differences"]
    assert compared["arrays"] == []


def test_plans_are_compared_by_the_programs_that_all_of_them_have() -> None:
    both = dataclasses.replace(
        samples.planned(samples.DEFAULT_MESH), programs=(Program("train_step"), Program("apply"))
    )
    first = dataclasses.replace(both, programs=both.programs[:1])
    assert [[program.name for program in one.programs] for one in aligned([both, first])] == [
        ["train_step"],
        ["train_step"],
    ]
    compiled = dataclasses.replace(both, source=dataclasses.replace(both.source, kind="cpu"))
    assert aligned([compiled, first]) == (compiled, first)
