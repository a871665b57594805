"""Tests of the reader of MaxText goldens."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from inspector.files import strict_json
from inspector.readers import maxtext
from inspector.records import snapshot
from inspector.text.errors import InvalidInput
from tests.readers import given

MESH = {"axis_names": ["data", "fsdp", "one"], "shape": {"data": 2, "fsdp": 4, "one": 1}}
KEY = ".params/['params']/['kernel']"
ENTRY = {"mesh": MESH, "partition_spec": [["fsdp", "one"], None], "shape": [8, 6]}


def read(path: Path) -> snapshot.Snapshot:
    result = maxtext.read(path, "it")
    assert snapshot.from_json(strict_json.parse(snapshot.dumps(result), "it")) == result
    return result


def written(folder: Path, **files: Any) -> Path:
    for name, content in files.items():
        (folder / f"{name}_shardings.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize("path", [*given.OWN_GOLDENS, *given.GOLDENS], ids=given.golden_name)
def test_every_array_equals_its_golden(path: Path) -> None:
    named = json.loads(path.read_text())
    logical = json.loads(path.with_name(maxtext.LOGICAL).read_text())
    snapshot = read(path)
    assert len(snapshot.arrays) == len(named)
    for array, (key, entry) in zip(snapshot.arrays, named.items(), strict=True):
        assert array.path == maxtext.path_of(key) and "[" not in array.path
        assert list(array.shape) == entry["shape"]
        # Encode the record as MaxText does.
        spec = [None if not axes else axes[0] if len(axes) == 1 else [*axes] for axes in array.spec]
        expected = entry["partition_spec"]
        assert spec == [*expected, *[None] * (len(spec) - len(expected))]
        assert [axis.name for axis in snapshot.mesh.axes] == entry["mesh"]["axis_names"]
        assert {axis.name: axis.size for axis in snapshot.mesh.axes} == entry["mesh"]["shape"]
        names = logical[key]["partition_spec"]
        assert list(array.logical_axes) == [*names, *[None] * (len(spec) - len(names))]
        ways = [math.prod(entry["mesh"]["shape"][axis] for axis in axes or ()) for axes in array.spec]
        if all(size % way == 0 for size, way in zip(array.shape, ways, strict=True)):
            assert list(array.shard_shape) == [
                size // way for size, way in zip(array.shape, ways, strict=True)
            ]
        assert array.bytes is None and array.dtype == "unknown"


@pytest.mark.parametrize("path", [*given.OWN_GOLDENS[-1:], *given.GOLDENS[:2]], ids=given.golden_name)
def test_a_folder_includes_activations(path: Path) -> None:
    rows = json.loads(path.with_name(maxtext.INPUT).read_text())["Activation Sharding Dump"]
    snapshot = read(path.parent)
    activations = [array for array in snapshot.arrays if array.group == "activation"]
    assert len(activations) == len(rows)
    assert len(snapshot.arrays) == len(rows) + len(json.loads(path.read_text()))
    for array, row in zip(activations, rows, strict=True):
        ((key, value),) = row.items()
        name, _, rest = key.partition(": ")
        assert array.path.split("#")[0] == f"activations/{name}"
        assert rest == f"{array.dtype}[{','.join(map(str, array.shape))}]"
        entries = eval(value["PartitionSpec"], {"P": lambda *given: given})
        spec = [None if not axes else axes[0] if len(axes) == 1 else axes for axes in array.spec]
        assert spec[: len(entries)] == list(entries) and not any(spec[len(entries) :])
        assert (array.logical_axes is None) == (value["logic_axes"] == "Unknown")


def test_without_the_logical_file_logical_axes_are_unknown(tmp_path: Path) -> None:
    snapshot = read(written(tmp_path, named={KEY: ENTRY}) / maxtext.NAMED)
    array = snapshot.array("params/params/kernel")
    assert array.logical_axes is None and array.spec == (("fsdp", "one"), None)
    assert array.shard_shape == (2, 6) and array.replicas == 2
    assert [finding.code for finding in snapshot.findings] == [
        "logical-axes-unknown",
        "types-and-devices-unknown",
    ]


def test_without_shapes_the_specs_are_still_read(tmp_path: Path) -> None:
    # The first goldens had no shapes, but logical axes.
    entry = {key: ENTRY[key] for key in ENTRY if key != "shape"}
    logical = {KEY: {"partition_spec": ["embed", "mlp"]}}
    array = (snapshot := read(written(tmp_path, named={KEY: entry}, logical=logical))).arrays[0]
    assert (array.shape, array.shard_shape, array.spec) == (None, None, (("fsdp", "one"), None))
    assert array.logical_axes == ("embed", "mlp") and array.replicas == 2
    assert "shapes-unknown" in [finding.code for finding in snapshot.findings]


def test_a_golden_of_8192_slices_is_read(tmp_path: Path) -> None:
    shape = {"data": 8192, "stage": 1, "fsdp": 16, "tensor": 1}
    entry = {
        "mesh": {"axis_names": list(shape), "shape": shape},
        "partition_spec": [["fsdp", "tensor"], "stage", None],
        "shape": [16384, 126, 53248],
    }
    keys = [f".params/['params']/['layer_{number}']" for number in range(200)]
    snapshot = read(written(tmp_path, named=dict.fromkeys(keys, entry)))
    assert snapshot.mesh.size == 131_072
    assert {array.shard_shape for array in snapshot.arrays} == {(1024, 126, 53248)}
    assert {array.replicas for array in snapshot.arrays} == {8192}


@pytest.mark.parametrize(
    ("key", "path"),
    [
        (".step", "step"),
        (".params/['params']/['a']", "params/params/a"),
        (".opt_state/[0]/.mu/['a.b/c']", "opt_state/0/mu/a.b/c"),
        (".params['params']['a']", "params/params/a"),
        ("[<flat index 3>]", "[<flat index 3>]"),
        ("plain", "plain"),
        (".a/[", ".a/["),
    ],
)
def test_key_paths(key: str, path: str) -> None:
    assert maxtext.path_of(key) == path


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "contains no named_shardings.json"),
        ({"named": []}, "must be an object"),
        ({"named": {}}, "must be an object"),
        ({"named": {KEY: 3}}, "must have partition_spec"),
        ({"named": {KEY: ENTRY | {"shape": [8, -6]}}}, "list of sizes"),
        ({"named": {KEY: ENTRY | {"shape": None}}}, "list of sizes"),
        ({"named": {KEY: ENTRY | {"mesh": {}}}}, "axis_names and shape"),
        ({"named": {KEY: ENTRY | {"mesh": MESH | {"axis_names": ["a"]}}}}, "same axes"),
        ({"named": {KEY: ENTRY | {"partition_spec": ["nowhere"]}}}, "which the mesh lacks"),
        ({"named": {KEY: ENTRY | {"partition_spec": [["fsdp", "fsdp"]]}}}, "twice"),
        ({"named": {KEY: {"partition_spec": ["a"], "shape": [8]}}}, "has no mesh"),
        ({"named": {"Activation Sharding Dump": []}}, "contains only activations"),
        ({"named": {KEY: ENTRY}, "logical": {KEY: {"shape": [8, 6]}}}, "list of logical axes"),
        (
            {"named": {KEY: ENTRY}, "logical": {KEY: {"partition_spec": ["a"], "shape": [8, 7]}}},
            "but the golden has",
        ),
        (
            {
                "named": {KEY: ENTRY},
                "logical": {KEY: {"partition_spec": ["a"] * 3, "shape": [8, 6]}},
            },
            "3 logical axes, but 2 dimensions",
        ),
        ({"named": {KEY: ENTRY}, "input": []}, "must have a list of objects under"),
        (
            {"named": {KEY: ENTRY}, "input": {"Activation Sharding Dump": [{"a": {}}]}},
            "a name, a type and a shape",
        ),
        (
            {
                "named": {KEY: ENTRY},
                "input": {"Activation Sharding Dump": [{"a: int8[2]": {"PartitionSpec": "__import__"}}]},
            },
            "must be like P",
        ),
    ],
)
def test_invalid_files_are_refused(tmp_path: Path, files: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        read(written(tmp_path, **files))


entries = st.lists(
    st.none()
    | st.sampled_from(["fsdp", "data", "a_b"])
    | st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(tuple),
    max_size=4,
)


@for_all(entries)
def test_a_written_spec_is_read_as_python_reads_it(spec: list[Any]) -> None:
    text = f"P({', '.join(map(repr, spec))}{',' * (len(spec) == 1)})"
    read_ = maxtext.entries_of(text, "it")
    assert [tuple(one) if isinstance(one, list) else one for one in read_] == spec


@for_all(st.text("P(),' Noneabc\"\n\\"))
def test_any_text_of_a_spec_is_read_or_refused(text: str) -> None:
    try:
        assert isinstance(maxtext.entries_of(text, "it"), list)
    except InvalidInput as refused:
        assert "\n" not in str(refused)
