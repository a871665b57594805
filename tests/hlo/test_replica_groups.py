"""Replica groups match XLA's answers, and NumPy's reshape and transpose."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from inspector.hlo import replica_groups
from inspector.hlo.replica_groups import Groups
from inspector.text.errors import InvalidInput
from tests.hlo import given

CASES = given.answers("group_cases.json")


def cases(key: str) -> Any:
    """Parametrize by case; pytest skips the test without cases."""
    return pytest.mark.parametrize(
        "case",
        CASES.get(key, ()),
        ids=lambda case: case if isinstance(case, str) else case.get("text"),
    )


@given.needs_cases
def test_cases_are_present() -> None:
    assert len(CASES["groups"]) > 20


@cases("groups")
def test_expansion_matches_xla(case: dict[str, Any]) -> None:
    assert [list(group) for group in replica_groups.expand(case["text"])] == case["expected_groups"]


@cases("counts")
def test_group_counts_match_xla(case: dict[str, Any]) -> None:
    groups = replica_groups.expand(case["text"])
    assert len(groups) == case["num_groups"]
    assert {len(group) for group in groups} == {case["per_group"]}


@cases("to_string")
def test_forms_printed_by_xla(case: str) -> None:
    groups = replica_groups.expand(case)
    named = sorted(itertools.chain.from_iterable(groups))
    assert named == list(range(len(named))) and len(named) >= 10


@cases("parse_errors")
def test_invalid_in_xla(case: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match=case["error"]) as refused:
        replica_groups.expand(case["text"])
    assert "\n" not in str(refused.value)


@cases("seen_in_dumps")
def test_groups_of_dumps(case: dict[str, Any]) -> None:
    groups = replica_groups.expand(case["text"])
    assert len(groups) == case["expected_num_groups"]
    assert [groups[0][0], groups[0][-1]] == case["first_group"]


def test_modes() -> None:
    for has_channel, flag, expected in CASES["group_modes"]["rows"]:
        if expected == "invalid":
            with pytest.raises(InvalidInput):
                replica_groups.mode(has_channel, flag)
        else:
            assert replica_groups.mode(has_channel, flag) == expected


@cases("participating")
def test_participants(case: dict[str, Any]) -> None:
    devices = np.array(case["da"])

    def take_part() -> Groups:
        groups = tuple(map(tuple, case["rg"]))
        return replica_groups.participants(
            groups, replica_groups.mode(case["ch"], case["ugdi"]), *devices.shape
        )

    if case.get("fails"):
        with pytest.raises(InvalidInput):
            take_part()
        return
    groups = take_part()
    assert [list(group) for group in groups] == case["flat"]
    assert [devices.reshape(-1)[list(group)].tolist() for group in groups] == case["dev"]


sizes = st.lists(st.integers(1, 5), min_size=1, max_size=5).filter(lambda s: math.prod(s) <= 256)


@for_all(sizes, st.data())
def test_iota_matches_numpy(dimensions: list[int], data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(dimensions))))
    count = math.prod(dimensions)
    rows = data.draw(st.sampled_from([n for n in range(1, count + 1) if count % n == 0]))
    text = f"[{rows},{count // rows}]<=[{','.join(map(str, dimensions))}]"
    if order != list(range(len(dimensions))) or data.draw(st.booleans()):
        text += f"T({','.join(map(str, order))})"
    expected = np.arange(count).reshape(dimensions).transpose(order).reshape(rows, -1)
    assert replica_groups.expand(text) == tuple(map(tuple, expected.tolist()))


def numpy_groups(ids: np.ndarray, shape: list[int], grouped: list[int]) -> list[list[int]]:
    """Return one group per position along the other axes, by visiting all positions."""
    table = ids.reshape(shape)
    others = [axis for axis in range(len(shape)) if axis not in grouped]
    groups = []
    for place in itertools.product(*(range(shape[axis]) for axis in others)):
        group = []
        for inside in itertools.product(*(range(shape[axis]) for axis in grouped)):
            index = [0] * len(shape)
            for axis, at in zip([*others, *grouped], [*place, *inside], strict=True):
                index[axis] = at
            group.append(int(table[tuple(index)]))
        groups.append(group)
    return groups


@for_all(sizes, st.data())
def test_mesh_form_matches_numpy(shape: list[int], data: st.DataObject) -> None:
    grouped = data.draw(st.lists(st.sampled_from(range(len(shape))), unique=True))
    count = math.prod(shape)
    ids = np.array(data.draw(st.permutations(range(count))))
    axes = ",".join(f"'axis_{number}'={size}" for number, size in enumerate(shape))
    asked = ",".join(f"'axis_{number}'" for number in grouped)
    written = ",".join(map(str, ids.tolist()))
    expected = tuple(map(tuple, numpy_groups(ids, shape, grouped)))
    assert replica_groups.expand(f"mesh[{axes}], device_ids=({written}) {{{asked}}}") == expected
    assert replica_groups.expand(f"mesh[{axes}, device_ids=({written})] {{{asked}}}") == expected
    plain = tuple(map(tuple, numpy_groups(np.arange(count), shape, grouped)))
    assert replica_groups.expand(f"mesh[{axes}] {{{asked}}}") == plain


@for_all(st.lists(st.integers(2, 4), min_size=1, max_size=4), st.data())
def test_sub_axis(parts: list[int], data: st.DataObject) -> None:
    """The sub-axis (2)3 of an axis of size 2·3·4 is the second axis of a mesh of 2, 3 and 4."""
    asked = data.draw(st.lists(st.sampled_from(range(len(parts))), unique=True))
    before = [math.prod(parts[:number]) for number in range(len(parts))]
    text = ",".join(f"'a':({before[number]}){parts[number]}" for number in asked)
    count = math.prod(parts)
    expected = numpy_groups(np.arange(count), parts, asked)
    got = replica_groups.expand(f"mesh['a'={count}] {{{text}}}")
    assert got == tuple(map(tuple, expected))


def test_a_part_of_size_1_groups_nothing() -> None:
    pairs = tuple((4 * part + at, 4 * part + at + 2) for part in range(3) for at in range(2))
    for text in ("'a':(3)2", "'a':(3)2,'a':(4)1", "'a':(12)1,'a':(3)2"):
        assert replica_groups.expand(f"mesh['a'=12] {{{text}}}") == pairs


@pytest.mark.parametrize(
    "text",
    [
        "", "{{0,1}", "{0,1}", "{{0,0}}", "{{0},{0}}", "{{-1}}", "[2,2]<=[5]", "[2]<=[2]",
        "[2,2]<=[4]T(1)", "[2,2]<=[2,2]T(0,0)", "[0,1]<=[0]", "[99999999,99999999]<=[9999999999999998]",
        "mesh['a'=0] {'a'}", "mesh['a'=2,'a'=2] {'a'}", "mesh['a'=4] {'a':(3)1}",
        "mesh['a'=4] {'a':(0)2}", "mesh['a'=4] {'a','a'}", "mesh['a'=4] {'a':(1)2,'a'}",
        "mesh['a'=2,'b'=2] {'a' 'b'}", "mesh['a'=2], device_ids=(0,0) {'a'}", "mesh['a'=2] 'a'",
        "mesh['a'=999999999] {'a'}", "mesh[] {'a'}", "mesh['a'=12] {'a':(1)4,'a':(6)2}",
    ],
)  # fmt: skip
def test_inconsistent_groups(text: str) -> None:
    with pytest.raises(InvalidInput, match="replica_groups"):
        replica_groups.expand(text)


def test_pairs() -> None:
    ring = replica_groups.pairs("{{0,1},{1,2}, {2,3},{3,0},{5,4}}")
    assert replica_groups.connected(ring) == ((0, 1, 2, 3), (4, 5))
    assert replica_groups.pairs("{}") == ()
    for text in ("{{0}}", "{{0,1,2}}", "0,1", "{{0,1}"):
        with pytest.raises(InvalidInput, match="source_target_pairs"):
            replica_groups.pairs(text)


def test_repeated_pairs_are_not_multiplied_by_replicas() -> None:
    pairs = ((0, 0),) * 1000
    with pytest.raises(InvalidInput):
        replica_groups.participants(pairs, "cross_partition", replica_groups.MAX_POSITIONS, 1)
