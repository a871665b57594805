"""The plan against what Flax and JAX themselves make of the same layout."""

from __future__ import annotations

import jax
import pytest
from flax import linen as nn
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding

from inspector import layout as layouts
from inspector.layout import Layout
from inspector.layout.plan import plan
from inspector.records.snapshot import Snapshot
from inspector.sharding import placement as sharding
from inspector.text.errors import InvalidInput
from inspector.tracing import leaves
from inspector.tracing.leaves import leaves_of
from inspector.tracing.model import build
from inspector.tracing.model.abstract import abstract_state
from tests.examples import costly

SMALL = {"batch": "8", "layers": "2", "depth": "16"}


def planned(**fields: str) -> Snapshot:
    layout = layouts.parse(fields).unwrap()
    return plan(layout, abstract_state(layout))


def linen_shardings(layout: Layout) -> dict[str, NamedSharding]:
    """Path → sharding, by `nn.get_sharding` or `nn.logical_to_mesh_sharding` alone."""
    mesh = build.make_mesh(layout)
    with build.tracing(layout, mesh):
        model = build.build_model(layout)
        key = jax.random.key(0)
        batch = jax.eval_shape(model.batch, key)
        state = jax.eval_shape(model.init, key, batch)
        if model.names == "mesh":
            shardings = nn.get_sharding(state, mesh)
        else:
            shardings = nn.logical_to_mesh_sharding(
                nn.get_partition_spec(state), mesh, build.linen_rules(layout)
            )
    is_sharding = lambda leaf: isinstance(leaf, NamedSharding)  # noqa: E731
    leaves = jax.tree.leaves(shardings, is_leaf=is_sharding)
    paths = [leaf.path for leaf in leaves_of(state)]
    return dict(zip(paths, leaves, strict=True))


def test_default_layout_is_the_guides() -> None:
    snapshot = planned()
    w1 = [a for a in snapshot.arrays if a.group == "params" and a.path.endswith("Dense_0/kernel")]
    assert len(w1) == 4
    for array in w1:
        assert array.spec == (None, ("model",))
        assert array.shard_shape == (1024, 256)
        placement = sharding.place_array(array, snapshot.mesh)
        holders = sharding.devices_by_block(placement, snapshot.mesh)
        assert holders == [(0, 4), (1, 5), (2, 6), (3, 7)]
    output = snapshot.array("output")
    holders = sharding.devices_by_block(sharding.place_array(output, snapshot.mesh), snapshot.mesh)
    assert holders == [(0, 1, 2, 3), (4, 5, 6, 7)]


@pytest.mark.parametrize("scan", ["false", "true"])
def test_device_axes_and_logical_axes_give_the_same_specs(scan: str) -> None:
    logical = planned(model="logical_mlp", scan=scan)
    device = planned(model="mlp", scan=scan)
    assert [(a.path, a.spec) for a in logical.arrays] == [(a.path, a.spec) for a in device.arrays]


def test_moments_follow_their_parameters_and_the_step_is_everywhere() -> None:
    snapshot = planned(rules="batch=data,embed=data,hidden=model")
    params = {a.path.removeprefix("params/"): a for a in snapshot.arrays if a.group == "params"}
    for moment in ("mu", "nu"):
        prefix = f"opt_state/0/{moment}/"
        moments = {a.path.removeprefix(prefix): a for a in snapshot.arrays if a.path.startswith(prefix)}
        assert moments.keys() == params.keys()
        for path, array in moments.items():
            assert (array.shape, array.spec) == (params[path].shape, params[path].spec)
    step = snapshot.array("step")
    assert (step.shape, step.spec, step.replicas) == ((), (), 8)


def test_scanned_kernels_have_a_layer_dimension_in_their_spec() -> None:
    snapshot = planned(scan="true", layers="4", mesh="2x2x2", axes="pipe,data,model",
                    rules="layer=pipe,batch=data,hidden=model")  # fmt: skip
    kernel = snapshot.array("params/ScanDotReluDot_0/Dense_0/kernel")
    assert kernel.shape == (4, 1024, 1024)
    assert kernel.logical_axes == ("layer", "embed", "hidden")
    assert kernel.spec == (("pipe",), None, ("model",))
    assert kernel.shard_shape == (2, 1024, 512)


def test_an_indivisible_dimension_is_a_finding() -> None:
    snapshot = planned(mesh="2x3", rules="hidden=model")
    kernel = snapshot.array("params/DotReluDot_0/Dense_0/kernel")
    assert (kernel.spec, kernel.shard_shape, kernel.bytes_per_device) == (
        (None, ("model",)),
        None,
        None,
    )
    sentences = {f.array: f.message for f in snapshot.findings}
    assert sentences[kernel.path] == (
        "hidden of size 1024 is not divisible by 3 (model) in params/DotReluDot_0/Dense_0/kernel"
    )
    # All else is still there.
    assert snapshot.array("output").bytes_per_device == 8 * 1024 * 4


axis_subsets = st.lists(st.sampled_from(["a", "b", "c"]), unique=True, max_size=3)
rule_lists = st.lists(
    st.tuples(st.sampled_from(["batch", "embed", "hidden", "layer"]), axis_subsets), max_size=6
)


@costly()
@given(rules=rule_lists, scan=st.booleans(), bias=st.booleans())
def test_plan_equals_linen_leaf_by_leaf_for_any_rules(rules: list, scan: bool, bias: bool) -> None:
    text = ",".join(f"{name}={'+'.join(axes)}" for name, axes in rules)
    layout = layouts.parse(
        SMALL | {"mesh": "2x2x2", "axes": "a,b,c", "rules": text, "scan": str(scan), "bias": str(bias)}
    ).unwrap()
    expected = linen_shardings(layout)
    snapshot = plan(layout, abstract_state(layout))
    mine = {a.path: a for a in snapshot.arrays if a.group in ("params", "opt_state", "other")}
    assert mine.keys() == expected.keys()
    for path, array in mine.items():
        theirs = expected[path]
        assert array.spec == leaves.spec_of(theirs.spec, len(array.shape))
        try:
            shard_shape = theirs.shard_shape(array.shape)
        except ValueError:
            shard_shape = None  # JAX refuses indivisible dimensions
        assert array.shard_shape == shard_shape


def test_a_mesh_axis_that_splits_two_dimensions_is_refused_as_jax_refuses_it() -> None:
    fields = {"model": "mlp", "scan": "true", "specs": "W1=None.model,layer=model"}
    with pytest.raises(InvalidInput, match="mesh axis model would split two dimensions"):
        planned(**SMALL, **fields)
    layout = layouts.parse(SMALL | fields).unwrap()
    with pytest.raises(Exception, match="duplicate entries for `model`"):
        linen_shardings(layout)
