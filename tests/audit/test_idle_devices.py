"""Devices that a recorded program leaves out, and programs that use all of them."""

from __future__ import annotations

import re

import pytest

from inspector import audit
from inspector.records.snapshot import Array, Mesh, MeshAxis, Program, Shard, Snapshot, Source
from inspector.sharding.meshes import devices_of

MESH = Mesh((MeshAxis("x", 4),), (0, 1, 2, 3))


def recorded(devices: int | None, mesh: Mesh | None, program_devices: int | None) -> Snapshot:
    """Return a record with one array, on the mesh or on device 0."""
    shards = None if mesh else (Shard(0, ((0, 8),), 0),)
    array = Array(
        "x", "other", (8,), "float32", spec=(("x",),) if mesh else None, bytes=32,
        bytes_per_device=8 if mesh else 32, replicas=1, shards=shards,
    )  # fmt: skip
    source = Source("capture", None, "2026-01-01", devices=devices)
    program = Program("step", devices=program_devices)
    return Snapshot(source, None, mesh, (array,), programs=(program,))


@pytest.mark.parametrize(
    ("snapshot", "level"),
    [
        (recorded(8, None, 1), "warning"),
        (recorded(8, MESH, 4), "note"),
        (recorded(4, MESH, 4), None),
        (recorded(1, None, 1), None),
        (recorded(None, MESH, 4), None),
        (recorded(8, MESH, None), None),  # where the program ran is unknown
        (recorded(8, MESH, 8), None),  # it ran on devices that no mesh has
    ],
)
def test_devices_that_hold_and_compute_nothing(snapshot: Snapshot, level: str | None) -> None:
    findings = [finding for finding in audit.audit(snapshot) if finding.code == "idle-devices"]
    assert [finding.level for finding in findings] == ([] if level is None else [level])
    # The head and the finding have the same numbers.
    numbers = [int(number) for number in re.findall(r"\d+", devices_of(snapshot))]
    if level == "note":
        assert numbers == [4, 8] and findings[0].ratio == 8 / 4
    else:
        assert len(numbers) < 2
    asked = any("hold and compute nothing" in question for question in audit.questions(snapshot))
    known = snapshot.source.devices not in (None, 1) and snapshot.programs[0].devices in (1, 4)
    assert asked == known
