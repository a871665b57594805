"""Folds contain equal arrays only, and trees of folds contain all arrays."""

from __future__ import annotations

import dataclasses
import itertools
import re

from hypothesis import given
from hypothesis import strategies as st

from inspector.figures.tree_rows import Node, grow
from inspector.records.snapshot import Array
from inspector.sharding.folding import Fold, fold

from . import samples

MESH = samples.DEFAULT_MESH


@st.composite
def some_arrays(draw: st.DrawFn) -> list[Array]:
    """Arrays with few different layouts and paths full of numbers, each path once."""
    segment = st.sampled_from(["layer_0", "layer_1", "layer_2", "layer_10", "0", "1", "w", "01", "x2y3"])
    paths = draw(st.lists(st.lists(segment, min_size=1, max_size=4).map("/".join), unique=True))
    shapes = st.sampled_from([((8,), (None,)), ((8, 4), (None, ("model",))), ((8, 4), (("model",), None))])
    return [samples.array(path, *draw(shapes), MESH) for path in paths]


def unfolded_paths(fold: Fold) -> set[str]:
    """The paths that a fold's text denotes, written out from the numbers between its braces."""
    parts = re.split(r"\{([^}]*)\}", fold.path)
    choices = []
    for place, part in enumerate(parts):
        if place % 2 == 0:
            choices.append([part])
        elif "…" in part and "," not in part:
            first, last = map(int, part.split("…"))
            choices.append([str(number) for number in range(first, last + 1)])
        else:
            choices.append(part.split(","))
    return {"".join(choice) for choice in itertools.product(*choices)}


@given(some_arrays())
def test_unfolding_returns_every_array_once(arrays: list[Array]) -> None:
    folds = fold(arrays)
    assert sorted(array.path for one in folds for array in one.arrays) == sorted(
        array.path for array in arrays
    )
    assert [one.first.path for one in folds] == sorted(
        (one.first.path for one in folds), key=[array.path for array in arrays].index
    )


@given(some_arrays())
def test_a_fold_contains_equal_arrays_and_names_them(arrays: list[Array]) -> None:
    for one in fold(arrays):
        assert len({dataclasses.replace(array, path="").__repr__() for array in one.arrays}) == 1
        assert unfolded_paths(one) == {array.path for array in one.arrays}


@given(some_arrays())
def test_no_two_folds_could_be_joined_at_a_single_number(arrays: list[Array]) -> None:
    """No two unfolded arrays differ from each other in one number only."""
    alone = [one.first for one in fold(arrays) if one.count == 1]
    for one, other in itertools.combinations(alone, 2):
        if (one.shape, one.spec) != (other.shape, other.spec):
            continue
        left, right = (re.split(r"([0-9]+)", array.path) for array in (one, other))
        if len(left) == len(right):
            differing = [
                place for place, pair in enumerate(zip(left, right, strict=True)) if len(set(pair)) > 1
            ]
            assert not (len(differing) == 1 and differing[0] % 2 == 1)


def test_the_default_state_folds_its_layers() -> None:
    assert [(one.path, one.count) for one in fold(samples.mlp_state())] == [
        ("step", 1),
        ("params/DotReluDot_{0…3}/Dense_0/kernel", 4),
        ("params/DotReluDot_{0…3}/W2", 4),
        ("opt_state/0/mu/DotReluDot_{0…3}/Dense_0/kernel", 4),
        ("opt_state/0/mu/DotReluDot_{0…3}/W2", 4),
        ("opt_state/0/nu/DotReluDot_{0…3}/Dense_0/kernel", 4),
        ("opt_state/0/nu/DotReluDot_{0…3}/W2", 4),
        ("opt_state/0/count", 1),
    ]


def test_a_layer_with_another_spec_is_not_folded() -> None:
    layers = list(samples.mlp_state(layers=4)[1:9:2])
    odd = samples.array(layers[2].path, (1024, 1024), samples.W2, MESH, ("embed", "hidden"))
    folds = fold([*layers[:2], odd, layers[3]])
    assert [one.path for one in folds] == [
        "params/DotReluDot_{0,1,3}/Dense_0/kernel",
        "params/DotReluDot_2/Dense_0/kernel",
    ]


def test_layers_of_several_heads_fold_twice() -> None:
    arrays = [
        samples.array(f"layer_{layer}/head_{head}", (8,), (None,), MESH)
        for layer in range(3)
        for head in range(2)
    ]
    assert [one.path for one in fold(arrays)] == ["layer_{0…2}/head_{0,1}"]


@given(some_arrays())
def test_the_tree_contains_and_counts_every_array(arrays: list[Array]) -> None:
    def leaves(nodes: tuple[Node, ...]) -> list[Node]:
        return [leaf for node in nodes for leaf in ([node] if node.fold else leaves(node.children))]

    def check(node: Node) -> None:
        if node.children:
            assert node.arrays == sum(child.arrays for child in node.children)
            for child in node.children:
                check(child)

    roots = grow(fold(arrays))
    for root in roots:
        check(root)
    held = [array for leaf in leaves(roots) for array in leaf.fold.arrays if leaf.fold]
    assert sorted(array.path for array in held) == sorted(array.path for array in arrays)


def test_arrays_with_the_same_path_share_a_fold() -> None:
    array = samples.kernel()
    damaged = [samples.with_path(array, path) for path in ("a", "a", "b1")]
    assert [(each.path, each.count) for each in fold(damaged)] == [("a", 2), ("b1", 1)]
