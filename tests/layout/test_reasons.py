"""Why a dimension is split: the ledger and its sentences."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from inspector.answers.array import reasons
from inspector.records.snapshot import Array
from inspector.sharding.rules import ledger, partition_spec
from tests.sharding.rules.test_rule_entries import MESH

RULES = (
    ("batch", ("data",)),
    ("embed", ("model",)),
    ("hidden", ("model",)),
    ("hidden", ("one",)),
    ("batch", ("one",)),
    ("layer", ()),
)


def array(*logical_axes: str | None) -> Array:
    spec = partition_spec(logical_axes, RULES)
    return Array("x", "params", (8,) * len(logical_axes), "float32", logical_axes, spec)


def sentences(array: Array, dimension: int) -> tuple[str, ...]:
    return reasons(array, MESH, RULES)[dimension].sentences


def test_a_reason_names_the_dimension_that_holds_the_mesh_axis() -> None:
    result = array("embed", "hidden")
    assert result.spec == (("model",), ("one",))
    assert sentences(result, 0) == ("Taken: rule 2, embed → model.",)
    assert sentences(result, 1) == (
        "Passed over: rule 3, hidden → model; mesh axis model is taken by embed (dimension 0) "
        "through rule 2, embed → model.",
        "Taken: rule 4, hidden → one.",
        "Mesh axis one has size 1 and splits nothing.",
    )


def test_a_later_rule_for_a_settled_axis_is_passed_over() -> None:
    assert sentences(array("batch"), 0)[1] == (
        "Passed over: rule 5, batch → one; rule 1, batch → data, had settled it."
    )


def test_unspecified_means_unsharded_in_every_way_of_not_specifying() -> None:
    result = array("vocab", None, "layer")
    assert sentences(result, 0) == ("No rule names vocab, and unspecified means unsharded.",)
    assert sentences(result, 1) == ("It has no logical axis, and unspecified means unsharded.",)
    assert sentences(result, 2) == ("Taken: rule 6, layer → none, which leaves it whole.",)
    unboxed = replace(result, logical_axes=None, spec=(None, None, None))
    assert sentences(unboxed, 0) == ("It has no logical axes, and unspecified means unsharded.",)


def test_an_axis_that_does_not_divide_is_named_with_the_numbers() -> None:
    result = replace(array("embed"), shape=(6,))
    assert sentences(result, 0)[-1] == "Its size 6 is not divisible by 4, which JAX refuses."


def test_without_a_spec_nothing_is_claimed() -> None:
    assert reasons(replace(array("embed"), spec=None), MESH, RULES) is None


names = st.sampled_from(["a", "b", "c", "d"])
rules = st.lists(
    st.tuples(names, st.lists(st.sampled_from(["x", "y", "z"]), unique=True).map(tuple)), max_size=8
)


@given(st.lists(st.none() | names, max_size=4, unique=True), rules)
def test_each_dimension_has_one_taken_rule_and_each_other_rule_one_cause(
    logical_axes: list, rules: list
) -> None:
    trials = ledger(logical_axes, rules)
    # Every rule that names a dimension is in the ledger, once, in order.
    named = [number for number, (name, _) in enumerate(rules) if name in logical_axes]
    assert [trial.rule for trial in trials] == named
    taken = [trial for trial in trials if trial.taken]
    assert len({trial.dimension for trial in taken}) == len(taken)
    for trial in trials:
        causes = (trial.settled_by is not None) + (trial.busy_axis is not None)
        assert causes == (0 if trial.taken else 1)
        if trial.busy_axis is not None:
            # The rule that holds the axis was taken before, and names the axis.
            assert trial.busy_rule < trial.rule and trial.busy_axis in rules[trial.busy_rule][1]
            assert any(t.rule == trial.busy_rule and t.dimension == trial.busy_dimension for t in taken)
