"""Tests of `_sharding` files: complete, truncated at every byte, and invalid."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from inspector.files import strict_json
from inspector.readers import imported_array, sharding_file
from inspector.records import snapshot
from inspector.text.errors import InvalidInput
from tests.readers import given, own_checkpoints

NAMED = {
    "sharding_type": "NamedSharding",
    "shape": [2, 2],
    "axis_names": ["data", "model"],
    "partition_spec": ["model", None],
    "device_mesh": {"mesh": [[{"id": 3}, {"id": 1}], [{"id": 0}, {"id": 2}]]},
}


def written(entries: dict[str, Any]) -> bytes:
    """Encode a sharding as Orbax does."""
    return json.dumps(
        {
            base64.urlsafe_b64encode(key.encode()).decode(): json.dumps(value)
            for key, value in entries.items()
        },
        separators=(",", ":"),
    ).encode()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sharding") / "_sharding"


def read(path: Path, content: bytes | None = None) -> snapshot.Snapshot:
    if content is not None:
        path.write_bytes(content)
    result = sharding_file.read(path, "it")
    assert snapshot.from_json(strict_json.parse(snapshot.dumps(result), "it")) == result
    return result


def test_specs_mesh_and_order_of_devices(place: Path) -> None:
    snapshot = read(place, written({"params.a/b.kernel": NAMED, "opt_state.0.count": NAMED}))
    assert snapshot.mesh.devices == (3, 1, 0, 2) and snapshot.mesh.axis_names == ("data", "model")
    array = snapshot.array("params/a/b/kernel")
    assert array.spec == (("model",), None) and array.replicas == 2 and array.group == "params"
    # Shapes and bytes are unknown.
    assert array.shape is None and array.bytes is None and array.shard_shape is None
    assert array.dtype == "unknown"
    assert [finding.code for finding in snapshot.findings] == ["shapes-unknown"]


@given.needs_cases
def test_a_published_truncated_file() -> None:
    snapshot = read(given.ORBAX / "kisoku-3.2b-base.items._sharding.truncated")
    assert snapshot.mesh.size == 16 and len(snapshot.mesh.axes) == 12
    assert snapshot.mesh.devices[:4] == (0, 4, 8, 12)
    assert {array.path: array.spec for array in snapshot.arrays} == {
        "opt_state/0/count": (),
        "opt_state/0/mu/params/decoder/decoder_norm/scale": (("tensor", "tensor_transpose"),),
    }
    assert snapshot.findings[0].code == "file-cut"
    assert "1,873 bytes" in snapshot.findings[0].message and "2 arrays" in snapshot.findings[0].message


def test_specs_equal_those_of_jax() -> None:
    saved = read(own_checkpoints.saved("zarr3") / "_sharding")
    assert saved.mesh.shape == (2, 4) and saved.mesh.devices == tuple(range(8))
    specs = {
        path: [(axes,) if isinstance(axes, str) else axes for axes in leaf.sharding.spec]
        for path, leaf in own_checkpoints.leaves().items()
    }
    # The rank is unknown, so a spec has as many entries as JAX's.
    assert {array.path: list(array.spec) for array in saved.arrays} == specs


@given.needs_cases
def test_specs_equal_those_of_the_whole_checkpoint() -> None:
    truth = json.loads((given.ORBAX / "truth_trainstate.json").read_text())
    snapshot = read(given.ORBAX / "trainstate_v1" / "state" / "_sharding")
    assert len(snapshot.arrays) == len(truth)
    assert snapshot.array("params/emb").spec == (("data", "model"), None)


def test_every_truncation_gives_the_complete_entries(place: Path) -> None:
    entries = {"params.é": NAMED, "b": NAMED | {"partition_spec": []}, "c": NAMED}
    content = written(entries)
    whole = read(place, content).arrays
    ends = [content.index(b'}}"', at) + 3 for at in _starts(content)]
    for length in range(len(content)):
        count = sum(end < length for end in ends)  # a comma or the end must follow
        if not count:
            with pytest.raises(InvalidInput, match=r"first entry|empty"):
                read(place, content[:length])
            continue
        snapshot = read(place, content[:length])
        assert snapshot.arrays == whole[:count]
        assert f"{length:,} bytes" in snapshot.findings[0].message


def _starts(content: bytes) -> list[int]:
    starts, at = [], 0
    while (at := content.find(b"sharding_type", at)) >= 0:
        starts.append(at)
        at += 1
    return starts


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"hello", "not JSON"),
        (b"[1]", "must be an object"),
        (b"{}", "must be an object"),
        (b'{"format": "sharding-snapshot"}', "'sharding-snapshot' file"),
        (b'{"not base64!": "{}"}', "base64 of key paths"),
        (b'{"/w==": "{}"}', "base64"),
        (b'{"YQ==": {}}', "must have JSON as text"),
        (b'{"YQ==": "{}", "YQ==": "{}"}', "twice"),
        (b'{"YQ==": "{}"} {', "not JSON"),
        (b'{"YQ==": NaN}', "NaN"),
        (b'{"YQ==": "{}",}', "not JSON"),
        ('{"YQ==": "{}"}'.encode("utf-16"), "UTF-16"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b"\x1f\x8b\x08", "gzip"),
        (b'{"a": ' * 5000, "deep|not JSON|first entry"),
    ],
)
def test_other_files_are_refused(place: Path, content: bytes, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        read(place, content)


@pytest.mark.parametrize(
    "entry",
    [
        {"sharding_type": "GSPMDSharding"},
        {"sharding_type": "PositionalSharding", "shape": [2]},
        {"sharding_type": "Mystery"},
        {"sharding_type": "SingleDeviceSharding", "device_str": "a device"},
        {},
        [],
        NAMED | {"axis_names": ["data"]},
        NAMED | {"axis_names": ["data", "data"]},
        NAMED | {"shape": [2, 0]},
        NAMED | {"shape": [2**40, 2**40]},
        NAMED | {"partition_spec": ["nowhere"]},
        NAMED | {"partition_spec": ["model", "model"]},
        NAMED | {"partition_spec": "model"},
        NAMED | {"partition_spec": [{"a": 1}]},
        NAMED | {"device_mesh": {"mesh": [[{"id": 3}, {"id": 3}], [{"id": 0}, {"id": 2}]]}},
        NAMED | {"device_mesh": {"mesh": [[{"id": 3}], {"id": 1}]}},
        NAMED | {"device_mesh": {"mesh": [{"id": -1}]}},
        NAMED | {"shape": [1] * 100, "axis_names": [f"a{n}" for n in range(100)]},
    ],
)
def test_an_invalid_entry_does_not_affect_the_others(place: Path, entry: Any) -> None:
    snapshot = read(place, written({"good": NAMED, "bad": entry}))
    assert snapshot.array("good").spec == (("model",), None)
    assert snapshot.array("bad").spec is None
    assert [finding.array for finding in snapshot.findings if finding.code == "sharding-unknown"] == ["bad"]


@pytest.mark.parametrize(
    ("text", "device"),
    [("TFRT_CPU_3", 3), ("cpu:3", 3), ("cuda:0", 0), ("TPU_12(process=1,(1,0,0,0))", 12)],
)
def test_the_device_name_gives_the_id(text: str, device: int) -> None:
    plain = {"sharding_type": "SingleDeviceSharding", "device_str": text}
    assert imported_array.read(plain).device == device


def test_without_device_ids_devices_are_numbered() -> None:
    saved = imported_array.read({key: NAMED[key] for key in NAMED if key != "device_mesh"})
    assert saved.mesh.devices == (0, 1, 2, 3) and not saved.numbered


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(list(NAMED)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@for_all(st.dictionaries(st.sampled_from([*NAMED, "memory_kind", "device_str"]), json_values))
def test_any_entry_is_read_or_has_a_problem(changed: dict[str, Any]) -> None:
    saved = imported_array.read(NAMED | changed)
    known = saved.spec is not None or saved.device is not None
    assert known == (saved.problem is None)
    if saved.spec is not None:
        assert {axis for axes in saved.spec for axis in axes or ()} <= set(saved.mesh.axis_names)


@for_all(st.binary() | st.text('{}"YQ=:,\\[] \n').map(str.encode))
def test_any_content_is_read_or_refused(place: Path, content: bytes) -> None:
    try:
        read(place, content)
    except InvalidInput as refused:
        assert "\n" not in str(refused) and str(refused).startswith("it")
