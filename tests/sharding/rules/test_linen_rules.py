"""Tests that rules give the same specs as Flax Linen."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flax import linen
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec

from inspector.sharding import rules
from tests.examples import costly
from tests.paths import CASES
from tests.sharding.rules.flax_forms import as_rule, normal

pytestmark = pytest.mark.close_to_jax

CASES = CASES / "rules" / "flax_logical_axis_cases.json"
ABSENT = "needs ../shared/cases"

# A Snapshot and a Layout cannot express this value.
UNCONSTRAINED = "__UNCONSTRAINED__"

# Few names, so that rules conflict, repeat and go unused all the time.
LOGICAL_AXES = ("batch", "embed", "hidden", "heads", "layer", "vocab")
MESH_AXES = ("data", "fsdp", "model", "expert")


@st.composite
def rule_lists(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """Draw rules in all forms that Linen accepts: to a name, a tuple of names, (), or None."""
    target = st.one_of(
        st.none(),
        st.sampled_from(MESH_AXES),
        st.lists(st.sampled_from(MESH_AXES), max_size=3, unique=True).map(tuple),
    )
    return draw(st.lists(st.tuples(st.sampled_from(LOGICAL_AXES), target), max_size=10))


@costly(40, otherwise=200)  # rules can conflict in many ways
@given(
    st.lists(st.sampled_from((*LOGICAL_AXES, None)), max_size=5).filter(
        lambda names: len({*names} - {None}) == len([name for name in names if name])
    ),
    rule_lists(),
)
def test_specs_are_those_of_linen(logical_axes: list[str | None], rule_list: list[tuple[str, Any]]) -> None:
    expected = linen.logical_to_mesh_axes(tuple(logical_axes), rule_list)
    assert isinstance(expected, PartitionSpec)
    spec = rules.partition_spec(logical_axes, [as_rule(*rule) for rule in rule_list])
    assert spec == normal(expected)
    assert len(spec) == len(logical_axes)


@given(st.lists(st.sampled_from(("batch", "embed", None)), min_size=2, max_size=5), rule_lists())
def test_a_repeated_logical_axis_is_refused_as_in_linen(
    logical_axes: list[str | None], rule_list: list[tuple[str, Any]]
) -> None:
    ours = [as_rule(*rule) for rule in rule_list]
    try:
        expected = normal(linen.logical_to_mesh_axes(tuple(logical_axes), rule_list))
    except ValueError:
        with pytest.raises(ValueError, match="occurs twice"):
            rules.partition_spec(logical_axes, ours)
    else:
        assert rules.partition_spec(logical_axes, ours) == expected


def published() -> list[Any]:
    """Every published case of logical axes to mesh axes: (rules, logical axes, expected)."""
    if not CASES.exists():
        return []
    content = json.loads(CASES.read_text(encoding="utf-8"))
    params = [
        pytest.param(case["rules"], case["logical_axes"], case["expected"], id=case["id"])
        for case in content["linen_logical_to_mesh_axes"]
    ]
    params += [
        pytest.param(case["rules"], case["axes"], case["expected"], id=f"fallback {case['fallback']}")
        for case in content["linen_fallback"]
        if case["fallback"].startswith("AXIS_IS_UNSHARDED")
    ]
    params += [
        pytest.param(case["rules"], case["axes"], case["linen"], id=f"linen and nnx {i}")
        for i, case in enumerate(content["linen_vs_nnx"]["demo"])
    ]
    return params


@pytest.mark.skipif(not CASES.exists(), reason=ABSENT)
@pytest.mark.parametrize(("rule_list", "logical_axes", "expected"), published())
def test_published_case_of_linen(rule_list: list, logical_axes: list, expected: list) -> None:
    ours = [as_rule(*rule) for rule in rule_list if rule[1] != UNCONSTRAINED]
    spec = rules.partition_spec([None if name == UNCONSTRAINED else name for name in logical_axes], ours)
    # UNCONSTRAINED leaves a dimension to the compiler, so these dimensions are not compared.
    for ours_entry, entry in zip(spec, normal(expected), strict=True):
        assert ours_entry == (None if entry == (UNCONSTRAINED,) else entry)
