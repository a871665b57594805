"""Effects of changed rules, for models whose rules Flax nnx reads and for those of Flax Linen."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

import pytest
from flax.core import spmd
from hypothesis import assume, given
from hypothesis import strategies as st

from inspector import layout as layouts
from inspector.compare import difference
from inspector.compare.difference.array_differences import arrays
from inspector.compare.difference.causes import causes
from inspector.layout.plan import plan
from inspector.model.built_in import catalogue
from inspector.records.snapshot import Snapshot
from inspector.sharding.abstract import AbstractState
from inspector.text.errors import InvalidInput
from inspector.tracing.model.abstract import abstract_state
from inspector.tracing.model.describe import entry_of

LINEN, NNX = "examples.linen_mlp:build", "examples.nnx_mlp:build"
SMALL = {"rows": "8", "width": "16", "hidden": "32", "mesh": "2x4", "target": "plan"}


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    before = dict(catalogue.CATALOGUE)
    catalogue.CATALOGUE.update({name: entry_of(name) for name in (LINEN, NNX)})
    yield
    catalogue.CATALOGUE.clear()
    catalogue.CATALOGUE.update(before)


@functools.cache
def shapes(name: str) -> AbstractState:
    return abstract_state(layouts.parse({"model": name} | SMALL).unwrap())


def planned(rules: str, name: str = NNX, **more: str) -> Snapshot:
    layout = layouts.parse({"model": name, "rules": rules} | SMALL | more).unwrap()
    return plan(layout, shapes(name))


def compare(before: str, after: str, *names: str, **more: str) -> tuple[str, ...]:
    """Return the sentences for two layouts of the models `names`, by default both of the nnx model."""
    one, other = names or (NNX, NNX)
    return difference.sentences(planned(before, one, **more), planned(after, other, **more))


def effect(sentences: tuple[str, ...], cause: str) -> str:
    """Return the rest of the sentence that starts with a cause."""
    (rest,) = [sentence.removeprefix(cause) for sentence in sentences if sentence.startswith(cause)]
    return rest


def without_effect(*causes: str) -> tuple[str, ...]:
    return (f"Changed without an effect on arrays: {', '.join(causes)}.",)


def test_nnx_uses_the_last_rule_of_a_name() -> None:
    before = "batch=data,hidden=data,hidden=model,embed="
    sentences = compare(before, "batch=data,hidden=model,hidden=data,embed=")
    rest = effect(sentences, "Rule hidden → model changed to hidden → data: ")
    assert "hidden from model 4 to data 2" in rest


def test_nnx_ignores_a_rule_before_the_last_of_its_name() -> None:
    before, after = (
        "batch=,hidden=model,hidden=model,embed=",
        "batch=,hidden=,hidden=model,embed=data",
    )
    sentences = compare(before, after)
    assert "embed from unsharded to data 2" in effect(
        sentences, "Rule embed → none changed to embed → data: "
    )
    assert not any("hidden → none" in sentence for sentence in sentences)
    only_unused = after.replace("embed=data", "embed=")
    assert compare(before, only_unused) == without_effect("rules that nnx does not use")
    # Linen uses the first rule.
    cause = "Rule hidden → model changed to hidden → none and rule embed → none changed to embed → data: "
    assert "hidden from model 4 to unsharded" in effect(compare(before, after, LINEN, LINEN), cause)


def test_the_order_of_names_matters_only_to_linen() -> None:
    reordered = compare("batch=data,hidden=model,embed=", "embed=,hidden=model,batch=data")
    assert reordered == without_effect("rules reordered")
    sentences = compare("hidden=model,embed=model", "embed=model,hidden=model", LINEN, LINEN)
    rest = effect(sentences, "Rules reordered: ")
    assert "embed from unsharded to model 4" in rest and "hidden from model 4 to unsharded" in rest


def test_nnx_reads_a_name_without_a_rule_as_a_mesh_axis() -> None:
    both = "batch=data,embed=,hidden=data", "batch=data,embed="
    rest = effect(
        compare(*both, axes="data,hidden"),
        "Rule hidden → data changed to no rule, so nnx reads hidden as a mesh axis: ",
    )
    assert "hidden from data 2 to hidden 4" in rest


def test_two_models_can_read_the_same_rules_differently() -> None:
    rules = "batch=data,hidden=data,hidden=model,embed="
    reader = "rule reader Flax Linen → Flax nnx"
    rest = effect(compare(rules, rules, LINEN, NNX), f"R{reader[1:]}: ")
    assert "hidden from data 2 to model 4" in rest
    # No array differs if both models read the rules alike.
    alike = "batch=data,hidden=model,embed="
    assert f"R{reader[1:]}: " not in " ".join(compare(alike, alike, LINEN, NNX))
    # A rule that changed as well is named if it matters to the second model.
    after = "batch=data,hidden=data,hidden=,embed="
    rest = effect(compare(rules, after, LINEN, NNX), "Rule hidden → model changed to hidden → none and ")
    assert reader in rest and "hidden from data 2 to unsharded" in rest


RULE = st.tuples(st.sampled_from(["batch", "embed", "hidden"]), st.sampled_from(["", "data", "model"]))
RULES = st.lists(RULE, max_size=5)


@given(RULES, RULES)
def test_causes_name_exactly_the_logical_axes_that_flax_maps_differently(before, after) -> None:
    ends = [("embed", ""), ("hidden", ""), ("batch", "")]  # before the others, which then decide
    both = [[*ends, *rules] for rules in (before, after)]
    try:
        old, new = (planned(",".join(f"{name}={axis}" for name, axis in rules)) for rules in both)
    except InvalidInput:
        assume(False)  # two dimensions on one mesh axis
    why = causes(old, new)
    flat = [[(name, axis or None) for name, axis in rules] for rules in both]
    for array in arrays(old, new):
        names = array.either.logical_axes or ()
        was, becomes = (spmd.from_sharding_rules(names, rules) for rules in flat)
        moved = {name for name, a, b in zip(names, was, becomes, strict=True) if name and a != b}
        result = why.of(array)
        assert bool(result) == bool(moved)
        assert {name for name in names if name and any(f" {name}" in c.text for c in result)} == moved


def test_arrays_without_logical_axes_can_differ_with_mesh_and_rules() -> None:
    before = planned("batch=data,embed=,hidden=model", mesh="2x4")
    after = planned("batch=data,embed=,hidden=", mesh="8", axes="data")
    unnamed = replace(before.arrays[0], path="gradient/y", group="gradient", logical_axes=None)
    sides = [
        replace(side, arrays=(*side.arrays, replace(unnamed, spec=spec)))
        for side, spec in ((before, (("model",), None)), (after, (None, None)))
    ]
    (array_difference,) = [array for array in arrays(*sides) if array.either.path == "gradient/y"]
    assert {cause.kind for cause in causes(*sides).of(array_difference)} == {"mesh"}
