"""Weights that stay on the devices of their source, and trees that are on several meshes on purpose."""

from __future__ import annotations

import pytest

from inspector import audit
from inspector.records.snapshot import Array, Mesh, MeshAxis, Snapshot, Source

FIRST, SECOND = (Mesh((MeshAxis("x", 2),), devices) for devices in ((0, 1), (2, 3)))
NAMES = ("q", "k", "v", "up", "down")


def array(path: str, on_second: bool) -> Array:
    return Array(
        path, "other", (4, 4), "float32", spec=(("x",), None), shard_shape=(2, 4), bytes=64,
        bytes_per_device=32, replicas=1, mesh=0 if on_second else None,
    )  # fmt: skip


def trees(**placed: str) -> Snapshot:
    """Return a Snapshot with a tree for each name; `2` are the arrays on the second mesh."""
    arrays = [
        array(f"{tree}/{name}", mesh == "2")
        for tree, meshes in placed.items()
        for name, mesh in zip(NAMES, meshes, strict=True)
    ]
    source = Source("capture", None, "2026-01-01")
    return Snapshot(source, None, FIRST, tuple(arrays), other_meshes=(SECOND,))


@pytest.mark.parametrize(
    ("snapshot", "arrays"),
    [
        (trees(params="11111", served="22211"), {"served/up", "served/down"}),
        (trees(params="22222", served="11112"), {"served/down"}),
        (trees(params="11111", served="22222"), None),  # all have moved
        (trees(params="11122"), None),  # layers on two meshes
        (trees(params="11122", moments="11122"), None),
        (trees(params="11111", served="11111"), None),
    ],
)
def test_arrays_left_behind(snapshot: Snapshot, arrays: set[str] | None) -> None:
    findings = [finding for finding in audit.audit(snapshot) if finding.code == "weights-not-moved"]
    assert [set(finding.arrays or ()) for finding in findings] == ([] if arrays is None else [arrays])
