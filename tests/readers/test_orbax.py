"""Tests of the Orbax reader with stored checkpoints and new ones."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from inspector.files import strict_json
from inspector.readers import orbax
from inspector.records import snapshot
from inspector.records.snapshot import Snapshot, Spec
from inspector.sharding import placement
from inspector.text.errors import InvalidInput
from tests.readers import given, own_checkpoints

P = PartitionSpec


def read(path: Path, **settings: Any) -> Snapshot:
    result = orbax.read(path, "given", **settings)
    # Every Snapshot survives its file.
    assert snapshot.from_json(strict_json.parse(snapshot.dumps(result), "it")) == result
    return result


def codes(snapshot: Snapshot) -> list[str]:
    return [finding.code for finding in snapshot.findings]


def path_of(key: str) -> str:
    parts = re.findall(r"\.(\w+)|\['(\w+)'\]|\[(\d+)\]", key)
    return "/".join(part for group in parts for part in group if part)


def padded(text: str, rank: int) -> Spec:
    entries = eval(text, {"P": lambda *entries: entries})  # the answers are Python source
    entries = [(entry,) if isinstance(entry, str) else entry for entry in entries]
    return (*entries, *(None,) * (rank - len(entries)))


# --- A TrainState saved in five ways ---------------------------------------------------------------


@pytest.mark.parametrize("form", own_checkpoints.FORMS)
def test_a_train_state_has_the_shardings_of_jax(form: str) -> None:
    saved = read(own_checkpoints.saved(form))
    leaves = own_checkpoints.leaves()
    assert {array.path for array in saved.arrays} == leaves.keys()
    for path, leaf in leaves.items():
        array = saved.array(path)
        assert array.shape == leaf.shape and array.dtype == str(leaf.dtype)
        entries = [(axes,) if isinstance(axes, str) else axes for axes in leaf.sharding.spec]
        assert array.spec == (*entries, *(None,) * (leaf.ndim - len(entries)))
        assert array.shard_shape == leaf.sharding.shard_shape(leaf.shape)
        assert array.bytes == leaf.nbytes
        assert array.bytes_per_device == leaf.addressable_shards[0].data.nbytes
        assert array.replicas == len({s.replica_id for s in leaf.addressable_shards})
    assert saved.mesh.axis_names == ("data", "model") and saved.mesh.shape == (2, 4)
    assert saved.mesh.devices == tuple(range(8))
    assert {array.group for array in saved.arrays} == {"params", "opt_state", "other"}
    assert not saved.findings


FORMS = (
    "trainstate_v0_ocdbt",
    "trainstate_v0_noocdbt",
    "trainstate_v0_zarr3",
    "trainstate_v1",
    "manager",
    "manager/3/state",
)


@given.needs_cases
@pytest.mark.parametrize("form", FORMS)
def test_a_train_state_has_its_saved_shardings(form: str) -> None:
    truth = json.loads((given.ORBAX / "truth_trainstate.json").read_text())
    snapshot = read(given.ORBAX / form)
    assert {array.path for array in snapshot.arrays} == {path_of(key) for key in truth}
    for key, expected in truth.items():
        array = snapshot.array(path_of(key))
        assert list(array.shape) == expected["shape"] and array.dtype == expected["dtype"]
        assert array.spec == padded(expected["spec"], len(array.shape))
        assert list(array.shard_shape) == expected["shard_shape"]
        assert array.bytes == expected["nbytes"]
        assert array.bytes_per_device == expected["per_device_bytes"]
        assert (array.replicas == 8) == expected["fully_replicated"]
    assert snapshot.mesh.axis_names == ("data", "model") and snapshot.mesh.shape == (2, 4)
    assert snapshot.mesh.devices == tuple(range(8))
    assert {array.group for array in snapshot.arrays} == {"params", "opt_state", "other"}
    assert not snapshot.findings


# --- Files that are missing or damaged -------------------------------------------------------------


@pytest.fixture(params=["own", given.shared("of others")])
def checkpoint(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    copy = tmp_path / "checkpoint"
    whole = own_checkpoints.saved("zarr3") if request.param == "own" else given.ORBAX / "trainstate_v0_zarr3"
    shutil.copytree(whole, copy, copy_function=shutil.copyfile)
    for path in copy.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    copy.chmod(0o755)
    return copy


def test_without_shardings_shapes_and_types_are_still_read(checkpoint: Path) -> None:
    whole = read(checkpoint)
    (checkpoint / "_sharding").unlink()
    snapshot = read(checkpoint)
    assert snapshot.mesh is None and codes(snapshot) == ["file-missing"]
    assert "_sharding" in snapshot.findings[0].message
    for array in snapshot.arrays:
        before = whole.array(array.path)
        assert (array.shape, array.dtype, array.bytes) == (before.shape, before.dtype, before.bytes)
        assert array.spec is None and array.bytes_per_device is None


def test_a_truncated_sharding_file_gives_its_complete_entries(checkpoint: Path) -> None:
    whole = read(checkpoint)
    content = (checkpoint / "_sharding").read_bytes()
    (checkpoint / "_sharding").write_bytes(content[: len(content) // 2])
    snapshot = read(checkpoint)
    assert codes(snapshot) == ["file-cut", "sharding-not-saved"]
    assert f"{len(content) // 2:,} bytes" in snapshot.findings[0].message
    known = [array for array in snapshot.arrays if array.spec is not None]
    assert 0 < len(known) < len(snapshot.arrays)
    assert all(array == whole.array(array.path) for array in known)


def test_without_the_database_only_shardings_are_known(checkpoint: Path) -> None:
    (checkpoint / "manifest.ocdbt").unlink()
    # The database of the process remains.
    assert read(checkpoint).array("params/emb").shape == (128, 32)
    shutil.rmtree(checkpoint / "ocdbt.process_0")
    snapshot = read(checkpoint)
    assert "shapes-unknown" in codes(snapshot)
    array = snapshot.array("params/emb")
    assert array.shape is None and array.spec == (("data", "model"), None)
    assert array.bytes is None and array.replicas == 1


def test_without_the_tree_names_are_those_of_the_database(checkpoint: Path) -> None:
    whole = read(checkpoint)
    (checkpoint / "_METADATA").unlink()
    snapshot = read(checkpoint)
    assert codes(snapshot) == ["file-missing"]
    assert {array.path: array for array in snapshot.arrays} == {array.path: array for array in whole.arrays}


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff" * 100, b"{}", b'{"tree_metadata": 3}'])
def test_a_damaged_tree_is_refused(checkpoint: Path, damage: bytes) -> None:
    (checkpoint / "_METADATA").write_bytes(damage)
    with pytest.raises(InvalidInput, match="given/_METADATA"):
        read(checkpoint)


def test_a_damaged_database_leaves_a_finding(checkpoint: Path) -> None:
    (checkpoint / "manifest.ocdbt").write_bytes(b"\x00" * 50)
    snapshot = read(checkpoint)
    assert "file-unreadable" in codes(snapshot)
    assert not any(str(checkpoint) in finding.message for finding in snapshot.findings)
    assert all(array.shape is None for array in snapshot.arrays)


# --- Other folders ---------------------------------------------------------------------------------


def test_other_folders_are_refused(tmp_path: Path) -> None:
    cases = {
        "nothing": "does not exist",
        "empty": "it is empty",
        "other": "is not an Orbax checkpoint",
        "file": "is a file",
        "100.orbax-checkpoint-tmp-7": "unfinished",
    }
    (tmp_path / "empty").mkdir()
    for name in ("one", "two"):
        (tmp_path / "other" / name).mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "100.orbax-checkpoint-tmp-7").mkdir()
    for name, words in cases.items():
        with pytest.raises(InvalidInput, match=words):
            read(tmp_path / name)
    (tmp_path / "nested" / "inner" / "innermost").mkdir(parents=True)
    with pytest.raises(InvalidInput) as refused:
        read(tmp_path / "nested")
    assert "'inner'" in str(refused.value)
    (tmp_path / "around").mkdir()
    (tmp_path / "100.orbax-checkpoint-tmp-7").rename(tmp_path / "around" / "100.orbax-checkpoint-tmp")
    with pytest.raises(InvalidInput, match="unfinished"):
        read(tmp_path / "around")


def test_an_uncommitted_checkpoint_has_a_finding(checkpoint: Path) -> None:
    own = json.loads((checkpoint / "_CHECKPOINT_METADATA").read_text())
    own["commit_timestamp_nsecs"] = None
    (checkpoint / "_CHECKPOINT_METADATA").write_text(json.dumps(own))
    assert "checkpoint-uncommitted" not in codes(read(checkpoint))  # a commit file is enough
    (checkpoint / "commit_success.txt").unlink()
    snapshot = read(checkpoint)
    assert codes(snapshot) == ["checkpoint-uncommitted"] and snapshot.findings[0].level == "error"


# --- Checkpoints made by the tests -----------------------------------------------------------------


def on_mesh(value: Any, mesh: Mesh, spec: PartitionSpec) -> jax.Array:
    return jax.device_put(value, NamedSharding(mesh, spec))


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, jax.Array]]:
    """Save two steps with a manager on a mesh of permuted devices, and return the leaves of the last one."""
    folder = tmp_path_factory.mktemp("orbax") / "steps"
    devices = np.array(jax.devices()[:8])[[0, 4, 2, 6, 1, 5, 3, 7]].reshape(2, 2, 2)
    mesh = Mesh(devices, ("data", "fsdp", "tensor"), axis_types=(AxisType.Explicit,) + (AxisType.Auto,) * 2)
    other = Mesh(np.array(jax.devices()[:8]), ("all",))
    leaves = {
        "params/layer_0.attention/kernel": on_mesh(
            jnp.ones((8, 16), jnp.bfloat16), mesh, P(("fsdp", "data"), "tensor")
        ),
        "params/scale": on_mesh(jnp.ones(6, jnp.float16), mesh, P()),
        "opt_state/0/mask": on_mesh(jnp.ones((4, 2), bool), mesh, P("fsdp")),
        "opt_state/1": on_mesh(jnp.ones((16, 3)), other, P("all")),
        "alone": jax.device_put(jnp.ones((3,), jnp.int8), jax.devices()[5]),
    }
    tree = {
        "params": {
            "layer_0.attention": {"kernel": leaves["params/layer_0.attention/kernel"]},
            "scale": leaves["params/scale"],
        },
        "opt_state": [{"mask": leaves["opt_state/0/mask"]}, leaves["opt_state/1"]],
        "alone": leaves["alone"],
        "host": np.ones((2, 2)),
        "count": 3,
        "name": "a name",
        "nothing": None,
    }
    with ocp.CheckpointManager(folder, item_names=("default",)) as manager:
        manager.save(9, args=ocp.args.Composite(default=ocp.args.PyTreeSave({"small": jnp.ones(2)})))
        manager.save(12, args=ocp.args.Composite(default=ocp.args.PyTreeSave(tree)))
    (folder / "100.orbax-checkpoint-tmp-3").mkdir()
    return folder, leaves


def test_the_latest_step_equals_the_arrays_of_jax(steps: tuple[Path, dict[str, jax.Array]]) -> None:
    folder, leaves = steps
    snapshot = read(folder)
    assert snapshot.source.step == 12
    assert [axis.type for axis in snapshot.mesh.axes] == ["explicit", "auto", "auto"]
    assert snapshot.mesh.devices == (0, 4, 2, 6, 1, 5, 3, 7)
    for path, leaf in leaves.items():
        array = snapshot.array(path)
        assert array.shape == leaf.shape and array.dtype == str(leaf.dtype)
        assert array.bytes == leaf.nbytes
        shards = {shard.device: shard for shard in placement.shards(array, snapshot.mesh)}
        expected = leaf.sharding.devices_indices_map(leaf.shape)
        assert shards.keys() == {device.id for device in expected}
        for device, index in expected.items():
            ranges = tuple(part.indices(size)[:2] for part, size in zip(index, leaf.shape, strict=True))
            assert shards[device.id].index == ranges
    assert snapshot.array("opt_state/1").spec is None  # on another mesh, so its shards are listed
    assert snapshot.array("host").spec is None and snapshot.array("host").shape == (2, 2)
    assert "sharding-not-saved" not in codes(snapshot)
    assert not any(array.path in ("name", "nothing") for array in snapshot.arrays)


def test_a_step_is_chosen(steps: tuple[Path, dict[str, jax.Array]]) -> None:
    folder, _ = steps
    assert [array.path for array in read(folder, step=9).arrays] == ["small"]
    assert read(folder / "9", step=9).arrays[0].path == "small"
    with pytest.raises(InvalidInput, match="has no step 10; it has 9, 12"):
        read(folder, step=10)
    with pytest.raises(InvalidInput, match="is a single checkpoint"):
        read(folder / "9", step=10)


def test_shapes_and_dtypes_equal_those_of_orbax(steps: tuple[Path, dict[str, jax.Array]]) -> None:
    folder, _ = steps
    item = ocp.PyTreeCheckpointHandler().metadata(folder / "12" / "default")
    arrays = {array.path: array for array in read(folder).arrays}
    flat = jax.tree_util.tree_leaves_with_path(item.tree)
    seen = 0
    for keys, leaf in flat:
        path = jax.tree_util.keystr(keys, simple=True, separator="/")
        if getattr(leaf, "shape", None) is not None and path in arrays:
            assert arrays[path].shape == tuple(leaf.shape)
            assert arrays[path].bytes == math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize
            seen += 1
    assert seen >= 6


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        (b"[]", "must be an object"),
        (b'{"shape": [1, -2]}', "list of sizes"),
        (b'{"shape": [1.5]}', "list of sizes"),
        (b'{"shape": [NaN]}', "NaN"),
        (b'{"shape": [1], "shape": [2]}', "twice"),
    ],
)
def test_hostile_metadata_of_an_array_is_refused(metadata: bytes, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        orbax.stored_array(metadata, "it")


@pytest.mark.parametrize(
    ("written", "dtype"),
    [
        ("<f4", "float32"),
        ("|b1", "bool"),
        (">i8", "int64"),
        ("|u1", "uint8"),
        ("<c8", "complex64"),
        ("bfloat16", "bfloat16"),
        ("float8_e4m3fn", "float8_e4m3fn"),
        ("<U4", "unknown"),
        ([["a", "<f4"]], "unknown"),
    ],
)
def test_dtypes_have_the_names_of_jax(written: Any, dtype: str) -> None:
    metadata = json.dumps({"shape": [2], "dtype": written}).encode()
    assert orbax.stored_array(metadata, "it").dtype == dtype


def test_arrays_on_one_device_and_on_the_host(tmp_path: Path) -> None:
    ocp.PyTreeCheckpointer().save(tmp_path / "one", {"one": jnp.ones((4, 4)), "host": np.ones(3)})
    snapshot = read(tmp_path / "one")
    arrays = {array.path: array for array in snapshot.arrays}
    assert (arrays["one"].shard_shape, arrays["one"].bytes_per_device) == ((4, 4), 64)
    assert [shard.device for shard in arrays["one"].shards or ()] == [0]
    assert (arrays["host"].bytes_per_device, arrays["host"].shards) == (0, ())
    assert codes(snapshot) == ["on-host"]
    # NumPy arrays have no sharding, and Orbax writes no file without one.
    ocp.PyTreeCheckpointer().save(tmp_path / "host", {"host": np.ones(3), "number": 3})
    assert not (tmp_path / "host" / "_sharding").exists()
    assert codes(read(tmp_path / "host")) == ["on-host"]
