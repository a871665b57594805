"""Lock files: the same layout gives the same text, and every change is one line."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.audit import lock_file
from inspector.audit.checked import changes
from inspector.records import snapshot
from inspector.records.snapshot import Array, Collective, Program, Shard, Snapshot, Spec
from inspector.text.errors import InvalidInput
from tests.audit.policy.one_rule import collective
from tests.examples import costly
from tests.figures import samples

AXES = ("data", "model")
MESH = samples.DEFAULT_MESH


def specs(rank: int) -> st.SearchStrategy[Spec]:
    """Every spec over both axes in which no axis 2 times."""
    entries: list[Spec] = []
    for owner in itertools.product(range(rank + 1), repeat=len(AXES)):
        axes = [tuple(a for a, at in zip(AXES, owner, strict=True) if at == d) for d in range(rank)]
        entries.append(tuple(axis or None for axis in axes))
    return st.sampled_from(entries)


@st.composite
def arrays(draw: st.DrawFn, path: str) -> Array:
    rank = draw(st.integers(0, 2))
    spec = draw(st.one_of(st.none(), specs(rank)) if rank else st.just(()))
    shards = None
    if spec is None and rank and draw(st.booleans()):
        shards = tuple(
            Shard(device, ((0, draw(st.integers(0, 8))),) * rank, 0) for device in range(MESH.size)
        )
    dtype = draw(st.sampled_from(["float32", "bfloat16"]))
    group = draw(st.sampled_from(["params", "opt_state", "activation"]))
    return Array(path, group, (8,) * rank, dtype, spec=spec, shards=shards)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    paths = draw(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=8, unique=True))
    collectives = draw(
        st.lists(
            st.builds(
                collective,
                st.sampled_from(["all-gather", "all-reduce"]),
                st.sampled_from([None, (), ("data",), AXES]),
                st.sampled_from([None, 0, 3]),
                st.sampled_from([None, 1024]),
                st.booleans(),
            ),
            max_size=6,
        )
    )
    programs = (Program("train_step", collectives=tuple(collectives)), Program("init"))
    snapshot = samples.snapshot(MESH, tuple(draw(arrays(path)) for path in paths))
    return dataclasses.replace(snapshot, programs=programs)


@costly()
@given(snapshots(), st.randoms(use_true_random=False))
def test_the_order_of_the_snapshot_does_not_change_the_file(found: Snapshot, chance: random.Random) -> None:
    def mixed(things):
        return tuple(chance.sample(list(things), len(things)))

    programs = tuple(
        dataclasses.replace(one, collectives=one.collectives and mixed(one.collectives))
        for one in mixed(found.programs)
    )
    other = dataclasses.replace(
        found,
        arrays=mixed(found.arrays),
        programs=programs,
        source=dataclasses.replace(found.source, created="another time"),
    )
    assert lock_file.dumps(lock_file.locked(other)) == lock_file.dumps(lock_file.locked(found))


@given(snapshots())
def test_a_written_file_is_read_back_without_changes(found: Snapshot) -> None:
    lock = lock_file.locked(found)
    text = lock_file.dumps(lock)
    text.encode()
    again = lock_file.from_json(json.loads(text))
    assert again == lock and lock_file.dumps(again) == text
    now = changes(again, lock_file.locked(found))
    assert now.changed == now.unknown == ()


@given(snapshots(), st.data())
def test_a_changed_array_changes_one_line(found: Snapshot, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(found.arrays) - 1))
    old = found.arrays[place]
    new = dataclasses.replace(data.draw(arrays(old.path)), group=old.group)  # a role is no fact of a layout
    changed = dataclasses.replace(found, arrays=(*found.arrays[:place], new, *found.arrays[place + 1 :]))
    before, after = lock_file.locked(found), lock_file.locked(changed)
    texts = [lock_file.dumps(one).splitlines() for one in (before, after)]
    lines = [line for line in difflib.ndiff(*texts) if line[0] in "+-"]
    now = changes(before, after)
    same = (
        lock_file.locked(samples.snapshot(MESH, (old,))).arrays
        == lock_file.locked(samples.snapshot(MESH, (new,))).arrays
    )
    assert len(lines) == (0 if same else 2)
    assert len(now.changed) == (0 if same else 1)
    assert all(line.isprintable() for line in now.changed)


def test_each_line_is_one_array_in_order_of_paths() -> None:
    text = lock_file.dumps(lock_file.locked(samples.snapshot()))
    rows = [json.loads(line.strip().rstrip(",")) for line in text.splitlines() if '"path"' in line]
    assert [row["path"] for row in rows] == sorted(array.path for array in samples.mlp_state())
    assert rows[0] == {
        "path": "opt_state/0/count", "group": "opt_state", "shape": [], "dtype": "int32", "spec": [],
    }  # fmt: skip


def stepping(snapshot: Snapshot, *collectives: Collective) -> Snapshot:
    return dataclasses.replace(snapshot, programs=(Program("train_step", collectives=collectives),))


def changed(before: Snapshot, after: Snapshot) -> tuple[str, ...]:
    result = changes(lock_file.locked(before), lock_file.locked(after))
    assert result.unknown == ()
    return result.changed


def test_every_kind_of_change_is_one_line() -> None:
    snapshot = samples.snapshot()
    kernel, *rest = snapshot.arrays[1:]
    before = stepping(snapshot, collective(), collective(axes=("model",)))
    other = dataclasses.replace(kernel, spec=(None, None), dtype="bfloat16", shape=(2, 4))
    new = samples.array("params/new", (4, 8), (("data",), None), MESH)
    after = stepping(
        dataclasses.replace(snapshot, arrays=(other, *rest, new), mesh=samples.mesh(data=4, model=2)),
        *(collective(executions=2), collective("all-reduce")),
    )
    assert changed(before, after) == (
        "mesh: data 2 × model 4 → data 4 × model 2",
        "changed array params/DotReluDot_0/Dense_0/kernel: spec P(None, 'model') → P(None, None); "
        "shape 1024×1024 → 2×4; dtype float32 → bfloat16",
        "added array params/new: 4×8 float32 P('data', None)",
        "removed array step: scalar int32 P()",
        "changed all-gather over data in train_step: executions 1 → 2; payload 1.0 KiB → 2.0 KiB; "
        "on the wire per device 512 B → 1.0 KiB",
        "gained all-reduce over data in train_step: 1 instruction, 1 execution and 512 B on the wire "
        "per device in one run",
        "lost all-gather over model in train_step: 1 instruction, 1 execution and 512 B on the wire "
        "per device in one run",
    )


def test_the_summary_names_arrays_and_traffic() -> None:
    snapshot = samples.snapshot()
    kernel, *rest = snapshot.arrays[1:]
    unsharded = dataclasses.replace(kernel, spec=(None, None))
    before = stepping(snapshot, collective(payload=4096), collective("all-reduce", payload=2048))
    after = stepping(
        dataclasses.replace(snapshot, arrays=(unsharded, *rest)),
        *(collective(payload=8192), collective("all-reduce", payload=2048)),
    )
    result = changes(lock_file.locked(before), lock_file.locked(after))
    assert result.summary == (
        "params/DotReluDot_0/Dense_0/kernel is P(None, None) instead of P(None, 'model'), step is gone; "
        "train_step sends 5.0 KiB instead of 3.0 KiB per device in one run: all-gather over data +2.0 KiB"
    )
    assert changes(lock_file.locked(before), lock_file.locked(before)).summary is None
    same_traffic = dataclasses.replace(after, programs=before.programs)
    summary = changes(lock_file.locked(before), lock_file.locked(same_traffic)).summary
    assert summary is not None and summary.endswith(
        "train_step sends 3.0 KiB per device in one run, as before"
    )
    # Devices of two permutes can differ, a branch may not be taken, and bytes can be unknown.
    for rows, words in (
        ((collective("collective-permute"), collective("collective-permute", ("model",))), "up to 1.0 KiB"),
        ((collective(conditional=True),), "up to 512 B"),
        ((collective(payload=None),), "the traffic of train_step is unknown"),
    ):
        summary = changes(lock_file.locked(before), lock_file.locked(stepping(snapshot, *rows))).summary
        assert summary is not None and words in summary


def test_collectives_over_other_parts_of_an_axis_are_other_rows() -> None:
    snapshot = samples.snapshot()
    halves, pairs = (
        dataclasses.replace(collective(axes=None), axis_parts=(part,)) for part in ("data:(1)2", "data:(2)2")
    )
    lock = lock_file.locked(stepping(snapshot, halves, pairs))
    assert lock_file.from_json(json.loads(lock_file.dumps(lock))) == lock
    assert [row.axes for row in lock.collectives] == [("data:(1)2",), ("data:(2)2",)]
    (line,) = changed(stepping(snapshot, halves, pairs), stepping(snapshot, halves))
    assert line.startswith("lost all-gather over 2 parts of each half of data in train_step")


def test_the_order_of_devices_and_the_type_of_an_axis_are_changes() -> None:
    snapshot = samples.snapshot()
    turned = dataclasses.replace(MESH, devices=tuple(reversed(MESH.devices)))
    explicit = dataclasses.replace(
        MESH, axes=(dataclasses.replace(MESH.axes[0], type="explicit"), MESH.axes[1])
    )
    for mesh, line in (
        (turned, "mesh: other device order"),
        (explicit, "mesh: type of axis data: auto → explicit"),
        (None, "mesh: data 2 × model 4 → none"),
    ):
        assert changed(snapshot, dataclasses.replace(snapshot, mesh=mesh)) == (line,)


def test_an_array_on_another_mesh_is_a_change_although_its_spec_is_the_same() -> None:
    alone = samples.snapshot()
    moved, *_ = (array for array in alone.arrays if array.spec is not None)
    half = dataclasses.replace(MESH, axes=(MESH.axes[0],), devices=(6, 7))
    turned = dataclasses.replace(half, devices=(7, 6))
    on_half, on_turned = (
        dataclasses.replace(
            alone,
            other_meshes=(mesh,),
            arrays=tuple(
                dataclasses.replace(array, mesh=0) if array is moved else array for array in alone.arrays
            ),
        )
        for mesh in (half, turned)
    )
    assert changed(alone, alone) == changed(on_half, on_half) == ()
    for before, after, words in (
        (alone, on_half, "the first mesh → mesh data 2"),
        (on_half, alone, "mesh data 2 → the first mesh"),
        (on_half, on_turned, "other devices of the mesh"),
    ):
        assert changed(before, after) == (f"changed array {moved.path}: {words}",)
    lock = lock_file.locked(on_half)
    assert lock_file.from_json(json.loads(lock_file.dumps(lock))) == lock
    assert '"mesh"' not in json.dumps(json.loads(lock_file.dumps(lock_file.locked(alone)))["arrays"])


def test_other_versions_and_targets_are_notes() -> None:
    snapshot = samples.snapshot()
    sources = [dataclasses.replace(snapshot.source, versions={"jax": number}) for number in ("0.10", "0.12")]
    locks = [lock_file.locked(dataclasses.replace(snapshot, source=source)) for source in sources]
    now = changes(*locks)
    assert now.changed == now.unknown == () and now.noted == ("version of jax: 0.10 → 0.12",)
    tpu = dataclasses.replace(snapshot.source, kind="tpu", target="tpu:v5p:2x2x1")
    now = changes(lock_file.locked(snapshot), lock_file.locked(dataclasses.replace(snapshot, source=tpu)))
    assert now.changed == () and now.noted == ("source: cpu → tpu tpu:v5p:2x2x1",)


def test_a_plan_is_compared_without_collectives() -> None:
    activation = dataclasses.replace(samples.kernel(), path="activation/y", group="activation")
    ran = stepping(samples.snapshot(arrays=(*samples.mlp_state(), activation)), collective())
    planned = dataclasses.replace(samples.snapshot(), programs=())
    later = changes(lock_file.locked(planned), lock_file.locked(ran))
    assert later.changed == later.unknown == ()
    assert later.noted == ("collectives are not compared: the lock file has no compiled program",)
    earlier = changes(lock_file.locked(ran), lock_file.locked(planned))
    assert earlier.changed == () and "cannot be compared" in earlier.unknown[0]


def test_the_role_of_an_array_is_no_part_of_its_sharding() -> None:
    """The text of a program proves the role of an array, or does not, whatever its sharding is."""
    batch = dataclasses.replace(samples.kernel(), group="batch")
    locks = [
        lock_file.locked(samples.snapshot(arrays=(dataclasses.replace(batch, group=group, spec=spec),)))
        for group, spec in (
            ("batch", (("data",), None)),
            ("other", (("data",), None)),
            ("other", (None, None)),
        )
    ]
    assert changes(locks[0], locks[1]).changed == () and len(changes(locks[0], locks[2]).changed) == 1


def test_an_array_of_unknown_placement_is_noted() -> None:
    lost = dataclasses.replace(samples.kernel(), spec=None)
    lock = lock_file.locked(samples.snapshot(arrays=(lost,)))
    assert changes(lock, lock).noted == ("unknown placement of 1 array in both",)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "other"}, "neither a lock file nor a Snapshot"),
        ({"version": 2}, "reads up to version 1"),
        ({"version": True}, "must have an integer from 1"),
        ({"arrays": [{"path": "a"}]}, "arrays[0].group is missing"),
        ({"mesh": 3}, "must be an object"),
        ({"programs": None}, "must be a list"),
    ],
)
def test_an_invalid_lock_file_is_rejected(tmp_path: Path, change: dict, words: str) -> None:
    good = json.loads(lock_file.dumps(lock_file.locked(samples.snapshot())))
    path = tmp_path / "a.sharding.json"
    path.write_text(json.dumps(good | change))
    with pytest.raises(InvalidInput) as refused:
        lock_file.read(path)
    assert words in str(refused.value)
    path.write_text(json.dumps(good | {"arrays": good["arrays"][:1] * 2}))
    with pytest.raises(InvalidInput, match="2 times"):
        lock_file.read(path)


def test_a_snapshot_is_read_as_its_lock_file_and_unknown_keys_are_kept(tmp_path: Path) -> None:
    result = samples.snapshot()
    snapshot.write(result, tmp_path / "a.json")
    assert lock_file.read(tmp_path / "a.json") == lock_file.locked(result)
    plain = json.loads(lock_file.dumps(lock_file.locked(result))) | {"later": [1]}
    assert json.loads(lock_file.dumps(lock_file.from_json(plain)))["later"] == [1]
