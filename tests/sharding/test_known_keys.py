"""Keys that were in `extra` before they became fields: files of earlier versions mean the same."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import pytest

from inspector.records import snapshot, typed_json
from inspector.records.snapshot import Snapshot
from inspector.text.errors import InvalidInput
from tests.paths import ROOT

# Every key that version 1 wrote without a field, in an otherwise small file.
WRITTEN: dict[str, Any] = {
    "format": "sharding-snapshot",
    "version": 1,
    "source": {
        "kind": "orbax", "target": None, "created": "2026-01-01T00:00:00+00:00", "versions": {},
        "processes": 1, "file": "run/7", "step": 7, "saved": "2026-01-01T00:00:00+00:00",
    },
    "layout": None,
    "mesh": {
        "axes": [{"name": "data", "size": 2, "type": "auto"}], "devices": [0, 1], "processes": None,
        "device_kind": "TPU v3", "abstract": True, "slice_index": [0, 1], "device_order": "torus",
        "split": False, "topology": [1, 1], "wraps": [False, False], "coordinates": [[0, 0], [0, 0]],
        "cores": [0, 1],
    },
    "arrays": [
        {
            "path": "params/w", "group": "params", "shape": [4], "dtype": "float32", "logical_axes": None,
            "spec": None, "shard_shape": None, "bytes": 16, "bytes_per_device": None, "replicas": None,
            "shards": None, "box": None, "facts": None, "program": None, "memory_kind": None,
            "unreduced": ["data"], "reduced": ["model"], "sharding": "GSPMDSharding",
            "mesh_axes": {"x": 2}, "shard_map": {"manual_axes": ["data"], "other_axes": [["model"]]},
        }
    ],
    "programs": [
        {
            "name": "step", "flops_per_device": None,
            "memory": {
                "arguments": None, "outputs": None, "aliased": None, "temporaries": None, "code": None,
                "peak": 9, "capacity": 8, "compiler": "out of memory",
            },
            "collectives": None, "seconds": None, "losses": [],
            "shardings": [
                {
                    "role": "input", "path": "step/input/w", "requested": None, "compiled": None,
                    "same": None, "used": True, "donated": True,
                }
            ],
            "work": None, "ideal": None, "trace": None, "devices": 2,
        }
    ],
    "findings": [
        {
            "level": "warning", "code": "any", "message": "Any.", "array": "params/w", "bytes": 8,
            "per_device": True, "arrays": ["params/w"], "count": 1, "remedy": "Do.", "axes": ["data"],
            "logical_axis": "hidden", "logical_axes": [], "dimension": 0, "rule": 0,
            "rule_text": "hidden → data", "rules": ["a → b"], "unknown_name": "hiden", "cause": "order",
            "program": "step", "path": "step/input/w", "collective": "all-gather.1",
            "source": "train.py:1", "wire_bytes": 4, "ratio": 1.5, "needed": 9, "available": 8,
            "compiler": "out of memory",
        }
    ],
    "live": None,
    "assembly": {"asked": {"a": 1}, "made": {"b": [2]}},
    "host_local": {"asked": {"a": 1}, "made": {"b": [2]}},
}  # fmt: skip


def records(value: Any) -> Iterator[typed_json.Record]:
    if isinstance(value, typed_json.Record):
        yield value
        value = [getattr(value, name) for name, _, _ in typed_json.fields(type(value))]
    for part in value if isinstance(value, (list, tuple)) else ():
        yield from records(part)


def test_all_are_fields_and_are_written_as_before() -> None:
    read = snapshot.from_json(WRITTEN)
    assert not any(record.extra for record in records(read))
    assert read.to_json() == WRITTEN
    assert read.mesh is not None and read.mesh.coordinates == ((0, 0), (0, 0))
    assert read.arrays[0].shard_map == snapshot.ShardMap(("data",), (("model",),))
    assert read.findings[0].logical_axes == () and read.findings[0].rule == 0


def test_absent_keys_are_not_written() -> None:
    small = {
        key: value
        for key, value in WRITTEN.items()
        if key not in ("assembly", "host_local", "mesh", "programs", "findings")
    }
    small |= {
        "mesh": {name: WRITTEN["mesh"][name] for name in ("axes", "devices", "processes", "device_kind")},
        "programs": [],
        "findings": [dict.fromkeys(("array", "bytes")) | {"level": "note", "code": "a", "message": "b"}],
    }  # fmt: skip
    assert snapshot.from_json(small).to_json() == small
    # An earlier version wrote some of them as null.
    small["findings"][0] |= {"source": None, "logical_axis": None}
    read = snapshot.from_json(small)
    assert read.findings[0].source is None and "source" not in read.to_json()["findings"][0]


@pytest.mark.parametrize(
    ("place", "key", "value"),
    [
        ("arrays", "unreduced", "data"),
        ("arrays", "unreduced", [1]),
        ("arrays", "shard_map", ["data"]),
        ("arrays", "mesh_axes", {"x": "2"}),
        ("programs", "devices", "2"),
        ("programs", "devices", True),
        ("findings", "rule", -1),
        ("findings", "logical_axes", [None]),
        ("findings", "needed", 1.5),
        ("findings", "remedy", {"text": "Do."}),
    ],
)
def test_a_wrong_type_is_refused_with_the_name_of_the_field(place: str, key: str, value: object) -> None:
    wrong = WRITTEN | {place: [WRITTEN[place][0] | {key: value}]}
    with pytest.raises(InvalidInput, match=rf"{place}\[0\]\.{key}.* must be"):
        snapshot.from_json(wrong)


def test_code_uses_no_key_of_extra() -> None:
    """`extra` is for keys that this version does not know, so only reading and writing touch it."""
    assert "extra" in Snapshot.__dataclass_fields__
    for path in sorted((ROOT / "inspector").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "extra" in text else ():
            used = isinstance(node, ast.Attribute) and node.attr == "extra"
            given = isinstance(node, ast.keyword) and node.arg == "extra"
            # A Board keeps the unknown keys of its file while its layouts change.
            if (used or given) and path.name != "board.py":
                pytest.fail(f"{path}:{node.lineno} uses extra: make the key a field of the record")
