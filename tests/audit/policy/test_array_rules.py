"""Rules about arrays, checked against JAX's shardings and MaxText's definition."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from inspector.audit.policy.array_rules import unsplit_axes
from inspector.readers import maxtext
from inspector.records.snapshot import Array, Shard, Snapshot, Spec
from tests.audit.policy.one_rule import outcome, sentences
from tests.figures import samples
from tests.paths import CASES
from tests.readers import own_goldens

GOLDENS = CASES / "maxtext_goldens"


@st.composite
def placed(draw: st.DrawFn) -> tuple[Snapshot, NamedSharding]:
    """Draw one parameter on a small mesh, with its sharding in JAX."""
    several = st.lists(st.sampled_from([1, 2, 2, 4]), min_size=1, max_size=3)
    sizes = draw(several.filter(lambda sizes: math.prod(sizes) <= 16))
    names = ["a", "b", "c"][: len(sizes)]
    order = draw(st.permutations(names))
    rank = draw(st.integers(1, 3))
    used = order[: draw(st.integers(0, len(names)))]
    spec: list[tuple[str, ...]] = [()] * rank
    for axis in used:
        place = draw(st.integers(0, rank - 1))
        spec[place] = (*spec[place], axis)
    shape = tuple(64 * draw(st.integers(1, 2)) for _ in range(rank))
    own: Spec = tuple(axes or None for axes in spec)
    on = samples.mesh(**dict(zip(names, sizes, strict=True)))
    snapshot = samples.snapshot(on, (samples.array("params/w", shape, own, on),))
    devices = np.array(jax.devices()[: math.prod(sizes)]).reshape(sizes)
    return snapshot, NamedSharding(Mesh(devices, names), PartitionSpec(*own))


@given(placed())
def test_replicas_agree_with_jax(case: tuple[Snapshot, NamedSharding]) -> None:
    snapshot, sharding = case
    (array,) = snapshot.arrays
    size = sharding.mesh.size
    held = sharding.devices_indices_map(array.shape)
    assert bool(sentences("[replicated]\nover = 0", snapshot)) == (size > 1 and sharding.is_fully_replicated)
    # The share of the bytes on all devices that are further copies.
    shard_bytes = 4 * math.prod(sharding.shard_shape(array.shape))
    distinct = len({str(index) for index in held.values()})
    share = Decimal(100) * (size - distinct) * shard_bytes / (size * shard_bytes)
    over = sentences(f"[duplicated]\nmost_percent = {share:f}", snapshot)
    assert over == []  # a share equal to the limit is allowed
    if share > 0:
        assert sentences(f"[duplicated]\nmost_percent = {share - Decimal('0.001'):f}", snapshot)
    most = f"[bytes_per_device]\nmost = {shard_bytes}"
    assert sentences(most, snapshot) == []
    assert sentences(f"[bytes_per_device]\nmost = {shard_bytes - 1}", snapshot)
    for axis in sharding.mesh.axis_names:
        place = sharding.mesh.axis_names.index(axis)
        devices = np.moveaxis(sharding.mesh.devices, place, 0)
        devices = devices.reshape(len(devices), -1)
        same = len(devices) > 1 and all(
            str(held[one]) == str(held[other])
            for row in devices
            for one, other in zip(row, devices[0], strict=True)
        )
        said = sentences(f"[replicated]\nover = 0\nalong = '{axis}'", snapshot)
        assert bool(said) == same, axis


@given(placed())
def test_explicit_shards_give_the_same_result_as_a_spec(
    case: tuple[Snapshot, NamedSharding],
) -> None:
    snapshot, sharding = case
    (array,) = snapshot.arrays
    mesh = snapshot.mesh
    assert mesh is not None
    held = sharding.devices_indices_map(array.shape)
    shards = tuple(
        Shard(
            device.id,
            tuple(part.indices(size)[:2] for part, size in zip(index, array.shape, strict=True)),
            0,
        )
        for device, index in held.items()
    )
    without = dataclasses.replace(array, spec=None, shards=shards, bytes_per_device=None, replicas=None)
    assert unsplit_axes(without, mesh) == unsplit_axes(array, mesh)
    only_shards = dataclasses.replace(snapshot, arrays=(without,))
    for text in (
        "[replicated]\nover = 0",
        "[duplicated]\nmost_percent = 1",
        "[bytes_per_device]\nmost = 999",
    ):
        mine, other = outcome(text, only_shards), outcome(text, snapshot)
        assert mine.unknown is None and mine.holds == other.holds


def test_the_default_mlp_agrees_with_a_count_by_hand() -> None:
    # 8 kernels of 4 MiB, split 4 ways on 8 devices, and two moments of each: 2 copies of everything.
    snapshot = samples.snapshot()
    assert sentences("[replicated]\nover = '1 MiB'", snapshot) == []
    said = sentences("[replicated]\nover = '1 MiB'\nalong = 'data'", snapshot)
    assert len(said) == 8 and said[0] == (
        "params/DotReluDot_0/Dense_0/kernel: 4.0 MiB (4,194,304 bytes) not sharded over data "
        "(limit 1.0 MiB (1,048,576 bytes))"
    )
    (share,) = sentences("[duplicated]\nmost_percent = 49.9\ngroups = 'params'", snapshot)
    assert share.startswith("50.00% of the bytes on all devices are duplicates, 32.0 MiB of 64.0 MiB")
    # Two scalars are on every device. The printed share must exceed the limit.
    (close,) = sentences("[duplicated]\nmost_percent = 50", snapshot)
    assert close.startswith("50.00001% of the bytes on all devices")
    (least,) = sentences("[not_fully_sharded]\nmost_percent = 2", snapshot)
    assert least.startswith("100.00% of the bytes") and least.count("not over data") == 5
    assert sentences("[not_fully_sharded]\nmost_percent = 2\naxes = 'model'", snapshot) == []
    # 24 shards of 1 MiB, and two scalars.
    (fullest,) = sentences("[bytes_per_device]\nmost = '24 MiB'", snapshot)
    assert fullest.startswith("24.0 MiB (25,165,832 bytes) of params, opt_state, other on each device")
    assert sentences("[bytes_per_device]\nmost = 25165832", snapshot) == []


def test_groups_and_patterns_select_arrays() -> None:
    snapshot = samples.snapshot()
    rule = "[replicated]\nover = 0\nalong = 'data'\n"
    assert len(sentences(rule + "arrays = 'params/*_1/*'", snapshot)) == 2
    assert len(sentences(rule + "except = ['*/W2']", snapshot)) == 4
    assert len(sentences(rule + "groups = ['opt_state']\narrays = ['*/mu/*', '*/nu/*']", snapshot)) == 16
    assert sentences(rule + "except = '*'", snapshot) == []


def test_the_fullest_device_counts() -> None:
    on = samples.mesh(x=4)
    snapshot = samples.snapshot(on, (samples.uneven(on),))
    rule = "[bytes_per_device]\ngroups = 'output'\nmost = "
    # Three rows of six numbers of four bytes.
    assert sentences(rule + "72", snapshot) == []
    (said,) = sentences(rule + "71", snapshot)
    assert "72 B of output on device 0" in said


def test_unknown_facts_make_a_rule_unknown() -> None:
    on = samples.DEFAULT_MESH
    unknown = Array("params/w", "params", (4, 4), "float32", bytes=64)
    sizeless = dataclasses.replace(
        samples.array("params/v", (4, 4), (None, None), on), bytes=None, bytes_per_device=None
    )
    for arrays, text in (
        ((unknown,), "[replicated]\nover = 1"),
        ((sizeless,), "[replicated]\nover = 1"),
        ((unknown,), "[duplicated]\nmost_percent = 1"),
        ((unknown,), "[not_fully_sharded]\nmost_percent = 1"),
        ((sizeless,), "[bytes_per_device]\nmost = 1"),
    ):
        only = outcome(text, samples.snapshot(on, arrays))
        assert not only.holds and "unknown" in (only.unknown or "")
    # Known violations are reported even if other arrays are unknown.
    whole = samples.array("params/u", (4, 4), (None, None), on)
    both = outcome("[replicated]\nover = 1", samples.snapshot(on, (unknown, whole)))
    assert [violation.array for violation in both.violations] == ["params/u"] and both.unknown is not None
    meshless = dataclasses.replace(samples.snapshot(), mesh=None)
    assert outcome("[replicated]\nover = 1", meshless).unknown == "the Snapshot has no mesh"


def test_names_with_line_breaks_stay_on_one_line() -> None:
    on = samples.DEFAULT_MESH
    named = samples.array("params/a\nviolated: \x1b[2Jb", (4, 4), (None, None), on)
    (said,) = sentences("[replicated]\nover = 1", samples.snapshot(on, (named,)))
    assert said.isprintable()


@pytest.mark.parametrize(
    "folders",
    [
        own_goldens.folders(),
        pytest.param(
            sorted(path.parent for path in GOLDENS.rglob("named_shardings.json"))[:6],
            marks=pytest.mark.skipif(
                not GOLDENS.is_dir(), reason="needs MaxText's goldens in ../shared/cases"
            ),
        ),
    ],
    ids=["own", "MaxText's"],
)
def test_the_share_not_fully_sharded_agrees_with_maxtext(folders: Sequence[Path]) -> None:
    axes = ("fsdp", "fsdp_transpose", "context", "expert", "tensor", "stage")
    for folder in folders:
        golden = json.loads((folder / "named_shardings.json").read_text())
        params = {path: one for path, one in golden.items() if path.startswith(".params/")}
        sizes = next(iter(params.values()))["mesh"]["shape"]
        # As `_get_nontrival_mesh_axes` and `_analyze_sharding` of MaxText's sharding.py have it.
        targets = {axis for axis in axes if sizes.get(axis, 1) > 1}
        whole = sum(math.prod(parameter["shape"]) for parameter in params.values())
        bad = sum(
            math.prod(parameter["shape"])
            for parameter in params.values()
            if not targets <= set(re.findall(r"\w+", json.dumps(parameter["partition_spec"])))
        )
        snapshot = maxtext.read(folder, "the golden")
        listed = json.dumps(sorted(targets))
        share = Decimal(bad) * 100 / whole
        at = f"[not_fully_sharded]\naxes = {listed}\nmost_percent = "
        assert sentences(f"{at}{share + Decimal('1e-9'):f}", snapshot) == []
        if bad:
            assert sentences(f"{at}{max(share - Decimal('1e-9'), Decimal(0)):f}", snapshot)
            (said,) = sentences(f"{at}0", snapshot)
            figure, _, rest = said.partition("% of the ")
            assert rest and abs(Decimal(figure) - share) <= Decimal("0.005")
