"""Tests of leaf paths: those of Orbax equal those of JAX for every kind of key."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from inspector.readers import limits, orbax_folder
from inspector.readers.orbax import stored_metadata
from inspector.readers.orbax_folder import OCDBT
from inspector.records.snapshot import Snapshot
from inspector.sharding.totals import state_totals
from inspector.text.errors import InvalidInput
from tests.readers.test_orbax import codes, read

P = PartitionSpec


def on_mesh(*shape: int) -> jax.Array:
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))
    return jax.device_put(jnp.ones(shape), NamedSharding(mesh, P("data", "model")))


def saved(tree: Any, folder: Path, **settings: Any) -> Snapshot:
    ocp.PyTreeCheckpointer(**settings).save(folder / "saved", tree)
    return read(folder / "saved")


@pytest.mark.parametrize("database", [True, False])
def test_every_key_is_read(tmp_path: Path, database: bool) -> None:
    # The path in the Snapshot, and the keys of the leaf.
    keys = {
        "a/b": ("a/b",),
        "a/c.d": ("a", "c.d"),
        "a/é✓": ("a", "é✓"),
        "a/<b>x</b>": ("a", "<b>x</b>"),
        "e/f/g": ("e", "f/g"),
        "line\\nend": ("line\nend",),
        "no\\u200bwidth": ("no\u200bwidth",),
        "h/": ("h", ""),
        "=1+1": ("=1+1",),
    }
    tree: dict[str, Any] = {}
    arrays = {path: on_mesh(2 * number + 2, 4) for number, path in enumerate(keys)}
    for path, (*above, last) in keys.items():
        place = tree
        for key in above:
            place = place.setdefault(key, {})
        place[last] = arrays[path]
    snapshot = saved(tree, tmp_path, use_ocdbt=database)
    assert {one.path for one in snapshot.arrays} == keys.keys()
    for path, array in arrays.items():
        here = snapshot.array(path)
        assert (here.shape, here.dtype) == (array.shape, str(array.dtype))
        assert here.spec == (("data",), ("model",))
        assert here.bytes_per_device == array.addressable_shards[0].data.nbytes
    assert not snapshot.findings


@pytest.mark.parametrize("database", [True, False])
@pytest.mark.parametrize("tree", ["alone", "an empty key"])
def test_a_leaf_without_a_key_has_the_name_of_a_capture(tmp_path: Path, database: bool, tree: str) -> None:
    array = on_mesh(8, 4)
    snapshot = saved(array if tree == "alone" else {"": array}, tmp_path, use_ocdbt=database)
    assert [(one.path, one.shape, one.bytes_per_device) for one in snapshot.arrays] == [("array", (8, 4), 16)]
    assert not snapshot.findings


def test_two_leaves_with_one_path_get_different_names(tmp_path: Path) -> None:
    tree = {"a/b": on_mesh(2, 4), "a": {"b": on_mesh(4, 4)}, "params": {"w": on_mesh(8, 4)}}
    snapshot = saved(tree, tmp_path)
    assert {array.path: array.shape for array in snapshot.arrays} == {
        "a/b": (2, 4),
        "a.b": (4, 4),
        "params/w": (8, 4),
    }
    assert snapshot.array("params/w").group == "params"


def test_paths_are_unique() -> None:
    # One name equals another path, or two paths have the same printable form.
    assert orbax_folder.paths_of(
        {
            "a.b/c.d": ("a", "b/c", "d"),
            "a.b.c/d": ("a", "b", "c/d"),
            "x\ny": ("x\ny",),
            "x\\ny": ("x\\ny",),
        }
    ) == {"a.b/c.d": "a.b/c.d", "a.b.c/d": "a.b.c/d", "x\ny": "x\\ny", "x\\ny": "x\\ny (2)"}


@pytest.mark.parametrize("zarr3", [False, True])
def test_host_arrays_use_no_device_memory(tmp_path: Path, zarr3: bool) -> None:
    tree = {"w": on_mesh(8, 4), "table": np.ones((3, 5)), "step": 7, "name": "x", "none": None}
    snapshot = saved(tree, tmp_path, use_zarr3=zarr3)
    table = snapshot.array("table")
    assert (table.shape, table.bytes, table.bytes_per_device, table.shards) == ((3, 5), 120, 0, ())
    assert state_totals(snapshot).per_device == tree["w"].addressable_shards[0].data.nbytes
    assert codes(snapshot) == ["leaves-left-out", "on-host"]
    assert "1 leaf of _METADATA" in snapshot.findings[0].message
    assert "'step' and 1 other array" in snapshot.findings[1].message


def test_a_key_cannot_leave_the_folder(tmp_path: Path) -> None:
    saved({"a/b": on_mesh(8, 4)}, tmp_path, use_ocdbt=False)
    (tmp_path / "saved" / "a").rename(tmp_path / "outside")
    (tmp_path / "saved" / "a").symlink_to(tmp_path / "outside")
    assert read(tmp_path / "saved").array("a/b").shape is None
    tree = tmp_path / "saved" / "_METADATA"
    tree.write_text(tree.read_text().replace('"a/b"', '"../outside/b"'))
    assert read(tmp_path / "saved").array("../outside/b").shape is None


@pytest.mark.parametrize("database", [True, False])
def test_metadata_is_read_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: bool
) -> None:
    saved({"a": on_mesh(8, 4), "b": on_mesh(8, 4)}, tmp_path, use_ocdbt=database)
    with monkeypatch.context() as patched:
        patched.setattr(limits, "MOST_ARRAY_METADATA_BYTES", 20)
        snapshot = read(tmp_path / "saved")
    assert {array.shape for array in snapshot.arrays} == {None}
    assert {"file-unreadable", "shapes-unknown"} == set(codes(snapshot))
    monkeypatch.setattr(limits, "MOST_JSON_BYTES", 300)
    with pytest.raises(InvalidInput, match="more than 300 B of array metadata"):
        stored_metadata(tmp_path / "saved", "given")


@pytest.mark.parametrize(
    "entry", [3, {}, {"key_metadata": {}}, {"key_metadata": [3]}, {"key_metadata": [{"key": 3}]}]
)
def test_a_leaf_without_keys_is_refused(tmp_path: Path, entry: Any) -> None:
    file = tmp_path / "_METADATA"
    file.write_text(json.dumps({"tree_metadata": {"('a',)": entry}}))
    with pytest.raises(InvalidInput, match=r"it at \"\('a',\)\" must have a (list|text)"):
        orbax_folder.read(file, "it")


@pytest.mark.parametrize("name", ["d/0123", "ocdbt.process_0/d/4567"])
def test_a_pipe_in_a_database_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / OCDBT).write_bytes(b"\x0cdb")
    pipe = tmp_path / name
    pipe.parent.mkdir(parents=True)
    os.mkfifo(pipe)
    with pytest.raises(InvalidInput, match="a pipe or a device"):
        stored_metadata(tmp_path, "it")
    pipe.unlink()
    pipe.symlink_to(tmp_path / "absent")
    found, problems = stored_metadata(tmp_path, "it")
    assert not found and problems
