"""Arrays that no axis of a mesh divides, and the mesh that would, against a search of all splits."""

from __future__ import annotations

import itertools
import math

import pytest

from inspector import audit
from inspector.audit.replicated import largest_split
from inspector.records.snapshot import Array, Finding, Mesh, MeshAxis, Snapshot, Source


def findings(shape: tuple[int, ...], **axes: int) -> list[Finding]:
    """Return the findings about one replicated array of float32."""
    size = 4 * math.prod(shape)
    devices = math.prod(axes.values())
    mesh = Mesh(tuple(MeshAxis(*axis) for axis in axes.items()), tuple(range(devices)))
    array = Array(
        "w", "params", shape, "float32", spec=(None,) * len(shape), shard_shape=shape, bytes=size,
        bytes_per_device=size, replicas=devices,
    )  # fmt: skip
    source = Source("capture", None, "2026-01-01")
    return list(audit.audit(Snapshot(source, None, mesh, (array,))))


@pytest.mark.parametrize("devices", [2, 6, 8, 12])
@pytest.mark.parametrize("shape", [(4, 12, 516, 1364), (6, 10), (7, 9), (8,), (3, 5), (36, 4), ()])
def test_the_split_is_the_largest_of_all(shape: tuple[int, ...], devices: int) -> None:
    divisors = [[n for n in range(1, devices + 1) if size % n == 0] for size in shape]
    possible = [math.prod(split) for split in itertools.product(*divisors)]
    most = max((ways for ways in possible if devices % ways == 0), default=1)
    split = largest_split(shape, devices)
    assert math.prod(split) == most
    assert all(size % count == 0 for size, count in zip(shape, split, strict=True))


def test_an_array_that_only_another_mesh_divides() -> None:
    (finding,) = (f for f in findings((258, 510), data=4, model=1) if f.code == "no-axis-divides")
    assert finding.bytes == 258 * 510 * 4 * 3 // 4
    assert finding.remedy is not None
    assert "2 × 2" in finding.remedy


def test_an_array_that_nothing_divides_must_be_padded() -> None:
    (finding,) = (f for f in findings((257, 511), data=4) if f.code == "no-axis-divides")
    assert finding.bytes is None


@pytest.mark.parametrize("axes", [{"data": 2, "model": 4}, {"data": 2}])
def test_an_array_that_an_axis_of_the_mesh_divides_is_replicated(axes: dict[str, int]) -> None:
    """The PartitionSpec of the fix divides the array evenly over all devices."""
    result = findings((4, 12, 516, 1364), **axes)
    assert [finding.code for finding in result if finding.code == "no-axis-divides"] == []
    (replicated,) = (finding for finding in result if finding.code == "replicated-parameter")
    assert replicated.remedy is not None
    for axis in axes:
        assert f"'{axis}'" in replicated.remedy
    whole = 4 * 4 * 12 * 516 * 1364
    assert replicated.bytes == whole - whole // math.prod(axes.values())
