"""Tests of saved shardings, whose meshes are read and stored once."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.readers import imported_array, limits, sharding_file
from inspector.readers.imported_array import ImportedArrays, Meshes, Stored
from inspector.text.errors import InvalidInput

DEVICES = [[{"id": 4 * row + column} for column in range(4)] for row in range(2)]
NAMED = {
    "sharding_type": "NamedSharding",
    "shape": [2, 4],
    "axis_names": ["data", "model"],
    "axis_types": ["Auto", "Auto"],
    "partition_spec": ["data", None],
    "device_mesh": {"mesh": DEVICES},
}


def write(path: Path, entries: dict[str, Any]) -> Path:
    keys = {base64.urlsafe_b64encode(key.encode()).decode(): key for key in entries}
    path.write_text(json.dumps({key: json.dumps(entries[name]) for key, name in keys.items()}))
    return path


def test_equal_meshes_are_stored_once(tmp_path: Path) -> None:
    other = NAMED | {"device_mesh": {"mesh": DEVICES[::-1]}}
    explicit = NAMED | {"axis_types": ["Explicit", "Auto"]}
    without = {key: NAMED[key] for key in NAMED if key != "device_mesh"}
    entries = {"a": NAMED, "b": other, "c": NAMED, "d": other, "e": explicit, "f": without}
    by_key = sharding_file.read_entries(write(tmp_path / "it", entries), "it").by_key
    assert by_key["a"].mesh is by_key["c"].mesh and by_key["b"].mesh is by_key["d"].mesh
    assert by_key["b"].mesh.devices == (4, 5, 6, 7, 0, 1, 2, 3)
    assert not by_key["f"].numbered and by_key["f"].mesh.devices == tuple(range(8))
    # Axis types do not change the meaning of a spec.
    snapshot = sharding_file.read(tmp_path / "it", "it")
    assert {array.path: array.spec for array in snapshot.arrays if array.spec} == dict.fromkeys(
        "acef", (("data",), None)
    )


@given(
    st.recursive(
        st.sampled_from([0, {"id": 0}, {"id": 1}, {"id": 1, "x": 2}, {"id": "1"}, {}]),
        lambda inner: st.lists(inner, max_size=4),
        max_leaves=8,
    ),
    st.sampled_from([None, 0, 1]),
    st.sampled_from([",", ", "]),
)
def test_a_cached_grid_gives_the_same_sharding_as_the_whole_text(grid: Any, more: Any, comma: str) -> None:
    device_mesh = {"mesh": grid} | ({} if more is None else {"more": more})
    plain = NAMED | {"shape": [2], "axis_names": ["data"], "device_mesh": device_mesh}
    text = json.dumps(plain, separators=(comma, ":" + comma[1:]))
    meshes = Meshes()
    for _ in range(2):
        assert imported_array.read_text(text, "it", meshes) == imported_array.read(plain)


@pytest.mark.parametrize(
    "text", ['"{"mesh": [{"id": 1}]}"', '{"a": {"mesh": [[}}', '{"mesh": [1,]}', '{"mesh": [[]]']
)
def test_invalid_json_is_an_error(text: str) -> None:
    with pytest.raises(InvalidInput, match="it is not JSON"):
        imported_array.read_text(text, "it", Meshes())


def test_devices_of_all_meshes_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_DEVICES_TOGETHER", 20)
    plain = {key: NAMED[key] for key in NAMED if key not in ("device_mesh", "partition_spec")}
    entries = {
        str(size): plain | {"shape": [size, 1], "partition_spec": ["data"]} for size in (9, 8, 9, 7, 8)
    }
    by_key = sharding_file.read_entries(write(tmp_path / "it", entries), "it").by_key
    assert [saved.mesh is None for saved in by_key.values()] == [False, False, True]
    assert "more than 20 devices together" in (by_key["7"].problem or "")


def test_a_spec_with_fewer_entries_than_dimensions_leaves_the_others_unsharded() -> None:
    saved = imported_array.read(NAMED | {"partition_spec": ["data"], "memory_kind": "pinned_host"})
    arrays = ImportedArrays([saved])
    arrays.add("a", Stored((8, 4, 2)), saved)
    (array,) = arrays.arrays
    assert arrays.findings == []
    assert array.spec == (("data",), None, None) and array.shard_shape == (4, 4, 2)
    assert array.memory_kind == "pinned_host"


def test_shards_are_listed_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_SHARDS", 20)
    arrays = ImportedArrays()
    for name in "abc":
        arrays.add(name, Stored((8, 4)), imported_array.read(NAMED))
    assert [array.shards and len(array.shards) for array in arrays.arrays] == [8, 8, None]
    assert [finding.array for finding in arrays.findings] == ["c"]


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("METAL:0", 0),
        ("CudaDevice(id=3)", 3),
        ("neuron:12", 12),
        ("StreamExecutorGpuDevice(id=2, process_index=0, slice_index=0)", 2),
        ("TPU_4(process=1,(0,1,0,0))", 4),
        ("device three", None),
    ],
)
def test_device_ids_of_plugins(text: str, device: int | None) -> None:
    plain = {"sharding_type": "SingleDeviceSharding", "device_str": text}
    assert imported_array.read(plain).device == device
