"""Tests that rules give the same specs as Flax nnx, and that differences from Linen are found."""

from __future__ import annotations

import json
from typing import Any

import jax
import numpy as np
import pytest
from flax import linen, nnx
from hypothesis import example, given
from hypothesis import strategies as st
from jax.sharding import NamedSharding, PartitionSpec

from inspector.records.snapshot import Mesh, MeshAxis
from inspector.sharding.rules import nnx as by_name
from inspector.sharding.rules.nnx import disagreements
from tests.examples import costly
from tests.paths import CASES
from tests.sharding.rules.flax_forms import as_rule, normal

pytestmark = pytest.mark.close_to_jax

CASES = CASES / "rules" / "flax_logical_axis_cases.json"

# `model` is also a mesh axis, because nnx uses an unmatched name as a mesh axis.
LOGICAL_AXES = ("batch", "embed", "hidden", "model")
MESH_AXES = ("data", "model", "one")
MESH = Mesh((MeshAxis("data", 2), MeshAxis("model", 4), MeshAxis("one", 1)), tuple(range(8)))

targets = st.one_of(
    st.none(),
    st.sampled_from(MESH_AXES),
    st.lists(st.sampled_from(MESH_AXES), max_size=2, unique=True).map(tuple),
)
rule_lists = st.lists(st.tuples(st.sampled_from(LOGICAL_AXES), targets), max_size=8)
names_of_dimensions = st.lists(st.sampled_from((*LOGICAL_AXES, None)), max_size=4)


def variable(names: list[str | None], rules: list[tuple[str, Any]]) -> nnx.Variable:
    """Return a variable with these annotations, which has no sharding yet."""
    return nnx.Param(
        np.zeros((1,) * len(names)),
        out_sharding=tuple(names),
        sharding_rules=tuple(rules),
        eager_sharding=False,
    )


@costly(40, otherwise=200)  # rules can conflict in many ways
@given(names_of_dimensions, rule_lists)
@example(["batch", "batch"], [("batch", "data")])
@example(["batch", None], [])
def test_specs_are_those_of_nnx(names: list[str | None], rules: list[tuple[str, Any]]) -> None:
    expected = nnx.get_partition_spec(variable(names, rules)).get_value()
    assert isinstance(expected, PartitionSpec)
    ours = [as_rule(*rule) for rule in rules]
    assert by_name.partition_spec(names, ours) == normal(expected)
    # The ledger agrees: the taken rule decides, and it has every rule of a name, in order.
    trials = by_name.ledger(names, ours)
    taken = {trial.dimension: ours[trial.rule][1] or None for trial in trials if trial.taken}
    for dimension, name in enumerate(names):
        mine = [trial.rule for trial in trials if trial.dimension == dimension]
        assert mine == [at for at, (named, _) in enumerate(ours) if named == name]
        unmatched = None if name is None else (name,)
        assert taken.get(dimension, unmatched) == normal(expected)[dimension]


@given(names_of_dimensions, rule_lists)
def test_refusals_agree_with_jax(names: list[str | None], rules: list[tuple[str, Any]]) -> None:
    spec = by_name.partition_spec(names, [as_rule(*rule) for rule in rules])
    devices = np.array(jax.devices()[:8]).reshape(2, 4, 1)
    said = by_name.refusals(spec, MESH)
    try:
        NamedSharding(jax.sharding.Mesh(devices, MESH.axis_names), PartitionSpec(*spec))
    except Exception:  # DuplicateSpecError is not a ValueError
        assert said
    else:
        assert not said


@given(names_of_dimensions, rule_lists)
def test_disagreements_agree_with_flax(names: list[str | None], rules: list[tuple[str, Any]]) -> None:
    second = normal(nnx.get_partition_spec(variable(names, rules)).get_value())
    messages = disagreements(names, [as_rule(*rule) for rule in rules])
    try:
        first = normal(linen.logical_to_mesh_axes(tuple(names), rules))
    except ValueError:
        assert {message.cause for message in messages} == {"repeated"}
        assert all(message.linen is None for message in messages)
        return
    assert {message.dimension for message in messages} == {
        dimension for dimension in range(len(names)) if first[dimension] != second[dimension]
    }
    for message in messages:
        assert (message.linen, message.nnx) == (
            first[message.dimension] or (),
            second[message.dimension] or (),
        )
        ruled = [target for name, target in rules if name == message.logical_axis]
        assert (message.cause == "unmatched") == (not ruled)
        if len(ruled) == 1:
            assert message.cause in ("conflict", "unmatched")


@pytest.mark.parametrize(
    ("names", "rules", "causes"),
    [
        # Linen gives the axis to the first name, nnx to both.
        (["rows", "cols"], [("rows", "data"), ("cols", "data")], {"cols": "conflict"}),
        # Linen takes the first rule whose axes are free, nnx the last of a name.
        (["rows"], [("rows", "data"), ("rows", "model")], {"rows": "order"}),
        (["rows"], [("rows", None), ("rows", "model")], {"rows": "order"}),
        (
            ["rows", "model"],
            [("rows", "model"), ("rows", "data")],
            {"rows": "order", "model": "unmatched"},
        ),
        # Linen leaves a name without a rule unsharded, nnx takes it for a mesh axis.
        (["other"], [("rows", "data")], {"other": "unmatched"}),
        (["rows", None], [("rows", "data")], {}),
    ],
)
def test_causes_of_differences(
    names: list[str | None], rules: list[tuple[str, Any]], causes: dict[str, str]
) -> None:
    nnx_spec = normal(nnx.get_partition_spec(variable(names, rules)).get_value())
    linen_spec = normal(linen.logical_to_mesh_axes(tuple(names), rules))
    differences = disagreements(names, [as_rule(*rule) for rule in rules])
    assert {difference.logical_axis: difference.cause for difference in differences} == causes
    assert bool(causes) == (nnx_spec != linen_spec)


@pytest.mark.skipif(not CASES.exists(), reason="needs ../shared/cases")
def test_published_differences() -> None:
    demo = json.loads(CASES.read_text(encoding="utf-8"))["linen_vs_nnx"]["demo"]
    assert len(demo) == 4
    causes = []
    for case in demo:
        rules = [as_rule(*rule) for rule in case["rules"]]
        assert by_name.partition_spec(case["axes"], rules) == normal(case["nnx"])
        causes.append(
            {
                disagreement.logical_axis: disagreement.cause
                for disagreement in disagreements(case["axes"], rules)
            }
        )
    assert causes == [
        {"b": "conflict"},
        {"a": "order", "b": "unmatched"},
        {"a": "order", "b": "unmatched"},
        {"z": "unmatched"},
    ]
