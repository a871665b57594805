"""What a change of rules is said to have done, for models whose rules nnx reads and for those of Linen."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest
from flax.core import spmd
from hypothesis import assume, given
from hypothesis import strategies as st

from inspector import layout as layouts
from inspector.compare import difference
from inspector.compare.difference.array_differences import arrays
from inspector.compare.difference.causes import causes
from inspector.core.abstract import AbstractState
from inspector.core.errors import InvalidInput
from inspector.core.snapshot import Snapshot
from inspector.layout.plan import plan
from inspector.models import catalogue
from inspector.producers.abstract import abstract_state
from inspector.producers.describe import entry_of

LINEN, NNX = "examples.linen_mlp:build", "examples.nnx_mlp:build"
SMALL = {"rows": "8", "width": "16", "hidden": "32", "mesh": "2x4", "target": "plan"}


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    """The examples are models of this process, until these tests are over."""
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


def said(before: str, after: str, *names: str, **more: str) -> tuple[str, ...]:
    """What is said of two layouts of the models `names`, by default twice that of nnx."""
    one, other = names or (NNX, NNX)
    return difference.sentences(planned(before, one, **more), planned(after, other, **more))


def told(sentences: tuple[str, ...], cause: str) -> str:
    """What follows from a cause: the rest of its sentence."""
    (rest,) = [one.removeprefix(cause) for one in sentences if one.startswith(cause)]
    return rest


NOTHING = "; no array lies otherwise for it."


def test_to_nnx_the_last_rule_of_a_name_is_the_cause() -> None:
    before = "batch=data,hidden=data,hidden=model,embed="
    sentences = said(before, "batch=data,hidden=model,hidden=data,embed=")
    cause = (
        "The last rule of hidden, which nnx takes, is hidden → data in place of hidden → model: "
    )
    assert "hidden from model 4 to data 2" in told(sentences, cause)


def test_to_nnx_a_rule_before_the_last_of_its_name_is_no_cause() -> None:
    before, after = (
        "batch=,hidden=model,hidden=model,embed=",
        "batch=,hidden=,hidden=model,embed=data",
    )
    sentences = said(before, after)
    assert "embed from unsharded to data 2" in told(
        sentences, "The rule embed → none is now embed → data: "
    )
    cause = (
        "The rule hidden → model is now hidden → none, but nnx takes the last of hidden as before, "
        "hidden → model"
    )
    assert told(sentences, cause) == NOTHING
    # To Linen it is one.
    cause = "The rule hidden → model is now hidden → none and the rule embed → none is now embed → data: "
    assert "hidden from model 4 to unsharded" in told(said(before, after, LINEN, LINEN), cause)


def test_to_nnx_the_order_of_names_is_nothing() -> None:
    (only,) = said("batch=data,hidden=model,embed=", "embed=,hidden=model,batch=data")
    assert told((only,), "The same rules stand in another order") == NOTHING
    # Linen lets the first have the mesh axis.
    sentences = said("hidden=model,embed=model", "embed=model,hidden=model", LINEN, LINEN)
    rest = told(sentences, "The same rules stand in another order: ")
    assert "embed from unsharded to model 4" in rest and "hidden from model 4 to unsharded" in rest


def test_a_name_that_loses_its_rule_is_a_mesh_axis_to_nnx() -> None:
    both = "batch=data,embed=,hidden=data", "batch=data,embed="
    rest = told(
        said(*both, axes="data,hidden"),
        "The rule hidden → data is gone, so that nnx takes hidden for a mesh axis: ",
    )
    assert "hidden from data 2 to hidden 4" in rest


def test_the_same_rules_may_be_read_otherwise_by_another_model() -> None:
    rules = "batch=data,hidden=data,hidden=model,embed="
    reading = "Rules are read as Flax nnx reads them, no longer as Flax Linen"
    rest = told(said(rules, rules, LINEN, NNX), f"{reading}: ")
    assert "hidden from data 2 to model 4" in rest
    # Where both read them alike, no array is said to follow from it.
    alike = "batch=data,hidden=model,embed="
    assert reading not in " ".join(said(alike, alike, LINEN, NNX)).replace(reading + NOTHING, "")
    # And where the rules differ, too, one is named if it matters to the second model.
    after = "batch=data,hidden=data,hidden=,embed="
    rest = told(said(rules, after, LINEN, NNX), "The rule hidden → model is now hidden → none and ")
    assert "rules are read as Flax nnx" in rest and "hidden from data 2 to unsharded" in rest


RULE = st.tuples(
    st.sampled_from(["batch", "embed", "hidden"]), st.sampled_from(["", "data", "model"])
)
RULES = st.lists(RULE, max_size=5)


@given(RULES, RULES)
def test_of_each_array_those_names_are_told_that_flax_takes_elsewhere(before, after) -> None:
    ends = [("embed", ""), ("hidden", ""), ("batch", "")]  # before the others, which then decide
    both = [[*ends, *rules] for rules in (before, after)]
    try:
        old, new = (planned(",".join(f"{name}={axis}" for name, axis in rules)) for rules in both)
    except InvalidInput:
        assume(False)  # two dimensions on one mesh axis
    why = causes(old, new)
    flat = [[(name, axis or None) for name, axis in rules] for rules in both]
    for one in arrays(old, new):
        names = one.either.logical_axes or ()
        was, becomes = (spmd.from_sharding_rules(names, rules) for rules in flat)
        moved = {name for name, a, b in zip(names, was, becomes, strict=True) if name and a != b}
        clauses = why.of(one)
        assert bool(clauses) == bool(moved)
        assert {name for name in names if name and any(f" {name}" in c for c in clauses)} == moved
