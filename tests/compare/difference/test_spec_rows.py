"""Specs by array and layout: every array once, equal rows folded, the differing ones first."""

from __future__ import annotations

import dataclasses
import itertools

from hypothesis import given
from hypothesis import strategies as st

from inspector.compare.difference import spec_rows
from inspector.compare.splits import parts, split_of
from inspector.records.snapshot import Snapshot
from inspector.sharding.totals import STATE_GROUPS
from tests.compare.difference.layouts import planned

MESHES = ["2x4", "4x2", "1x8"]
RULES = ["batch=data", "batch=data,hidden=model", "embed=data+model"]
LAYOUTS = st.fixed_dictionaries({"mesh": st.sampled_from(MESHES), "rules": st.sampled_from(RULES)})


@given(st.lists(LAYOUTS, min_size=1, max_size=4))
def test_every_array_is_in_one_row_with_its_split(chosen: list[dict[str, str]]) -> None:
    snapshots = [planned(**fields) for fields in chosen]
    rows = spec_rows(snapshots)
    paths = [path for row in rows for path in row.paths]
    state = {a.path for snapshot in snapshots for a in snapshot.arrays if a.group in STATE_GROUPS}
    assert sorted(paths) == sorted(state)
    for row in rows:
        for path in row.paths:
            splits = [_split(snapshot, path) for snapshot in snapshots]
            texts = row.specs
            for one, other in itertools.combinations(range(len(snapshots)), 2):
                assert (texts[one] == texts[other]) == (splits[one] == splits[other])
        assert row.differs == (len(set(row.specs)) > 1)
    assert [row.differs for row in rows] == sorted((row.differs for row in rows), reverse=True)


def _split(snapshot: Snapshot, path: str) -> list[tuple[tuple[str, ...], int]]:
    """Return the axes and the number of parts of each dimension."""
    split = split_of(snapshot.array(path), snapshot.mesh)
    return [(tuple(name for name, _ in axes), parts(axes)) for axes in split or ()]


def test_layers_and_moments_fold_into_one_row() -> None:
    rows = spec_rows([planned(), planned(rules="batch=data")])
    (kernels,) = (row for row in rows if "params/DotReluDot_0/W2" in row.paths)
    assert kernels.title == "params/DotReluDot_{0,1}/W2 and 4 more"
    assert kernels.specs == ("P('model', None)", "P(None, None)") and kernels.differs
    assert kernels.logical == ("(hidden, embed)",)


def test_a_missing_array_has_no_spec() -> None:
    rows = spec_rows([planned(), planned(optimizer="sgd")])
    assert all((row.specs[1] is None) == all("mu" in p or "nu" in p or "count" in p for p in row.paths)
               for row in rows)  # fmt: skip


def test_omitted_unsharded_dimensions_are_no_difference() -> None:
    whole = planned()
    short = dataclasses.replace(
        whole,
        arrays=tuple(
            dataclasses.replace(array, shape=None, shard_shape=None, spec=_short(array.spec))
            for array in whole.arrays
        ),
    )
    assert not any(row.differs for row in spec_rows([whole, short]))


def _short(spec):
    while spec and not spec[-1]:
        spec = spec[:-1]
    return spec
