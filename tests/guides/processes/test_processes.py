"""Tests of requests for host-local arrays, their shapes and their script, without JAX."""

from __future__ import annotations

import ast
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.guides import processes
from inspector.guides.processes import HostLocal, script
from inspector.records import typed_json
from inspector.text.errors import InvalidInput


def asked(**fields: str) -> HostLocal:
    return processes.parse(fields).unwrap()


def test_the_default_is_the_example_of_the_migration_guide() -> None:
    host_local = asked()
    assert (host_local.processes, host_local.mesh_shape, host_local.local_shape) == (2, (8,), (4, 2))
    assert host_local.spec == (("x",), None)
    assert processes.local_mesh(host_local) == (4,)
    assert processes.global_shape(host_local) == (8, 2)
    assert host_local.mesh().devices == (0, 1, 2, 3, 2048, 2049, 2050, 2051)


@pytest.mark.parametrize(
    ("fields", "part", "shape"),
    [
        ({"mesh": "2x4", "axes": "a,b", "spec": "a,b"}, (1, 4), None),  # 2 columns, 4 devices
        ({"mesh": "2x4", "axes": "a,b", "spec": "a,b", "local": "4x8"}, (1, 4), (8, 8)),
        ({"mesh": "2x4", "axes": "a,b", "spec": "b", "local": "4"}, (1, 4), (4,)),
        ({"mesh": "2x4", "axes": "a,b", "spec": "a+b", "local": "4"}, (1, 4), (8,)),
        ({"mesh": "4x2", "axes": "a,b", "spec": "a,b", "processes": "4"}, (1, 2), (16, 2)),
        ({"mesh": "4x2", "axes": "a,b", "spec": "None, a", "local": "1x6"}, (2, 2), (1, 12)),
        ({"spec": "", "local": "3"}, (4,), (3,)),
        ({"spec": "x", "local": "3"}, (4,), None),
        ({"mesh": "3x4", "axes": "a,b", "spec": "b"}, None, None),
    ],
)
def test_shapes_follow(fields: dict, part: tuple | None, shape: tuple | None) -> None:
    host_local = asked(**fields)
    assert processes.local_mesh(host_local) == part
    assert processes.global_shape(host_local) == shape


# By field: its text, and words of the error.
INVALID = {
    "processes": {
        "3": "processes is '3', but must be 2 or 4",
        "1": "processes is '1', but must be 2 or 4",
    },
    "mesh": {
        "3": "processes is 2, but must divide the 3 devices of mesh 3",
        "64": "has 64 devices, but may have at most 32",
        "2x2x2x2": "has 4 axes, but may have at most 3",
        "two": "mesh is 'two'",
    },
    "axes": {"a,b": "axes gives 2 names"},
    "spec": {
        "y": "spec names mesh axis 'y', but the mesh has x",
        "x,x": "may use each mesh axis only once",
        "x,None,None": "3 entries, but the array has 2 dimensions",
    },
    "local": {
        "17": "each size must be from 1 to 16",
        "0": "each size must be from 1 to 16",
        "2x2x2": "has 3 dimensions, but may have at most 2",
        "4by2": "but must be sizes joined by x",
    },
    "data": {"other": "data is 'other', but must be one of own, same"},
    "convert": {"1": "convert is '1', but must be one of true, false"},
}


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in INVALID.items() for text in texts]
)
def test_the_error_of_a_wrong_field(name: str, text: str) -> None:
    parsed, said = processes.parse({name: text}), INVALID[name][text]
    assert parsed.value is None and len(parsed.problems) == 1
    assert said in next(iter(parsed.problems.values()))
    with pytest.raises(InvalidInput, match=re.escape(said)):
        parsed.unwrap()


def test_json_round_trip() -> None:
    for fields in ({}, {"spec": "None, x", "local": "2x8", "convert": "false", "data": "same"}):
        host_local = asked(**fields)
        assert typed_json.decode(HostLocal, host_local.to_json()) == host_local


@given(st.sampled_from(list(processes.DEFAULTS)), st.text(max_size=12))
def test_any_text_is_read_or_refused(name: str, text: str) -> None:
    parsed = processes.parse({name: text})
    assert (parsed.value is None) == bool(parsed.problems)


def test_processes_have_different_or_equal_numbers() -> None:
    own, same = asked(), asked(data="same")
    assert own.given(0).tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert own.given(1).tolist() == [[8, 9], [10, 11], [12, 13], [14, 15]]
    assert (same.given(0) == same.given(1)).all()


def test_the_script_is_python_for_every_request() -> None:
    for spec in ("x", "None", "None, x", "x + y"):
        for convert in ("true", "false"):
            text = script(asked(mesh="2x4", axes="x,y", spec=spec, convert=convert))
            ast.parse(text)
            assert ("host_local_array_to_global_array(local" in text) == (convert == "true")
