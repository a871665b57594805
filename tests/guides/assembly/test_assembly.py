"""What can be asked for: fields, recipe, limits, mistakes, and the JSON that goes to a worker."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.guides import assembly as assemblies
from inspector.records import typed_json
from inspector.records.snapshot import Mesh, MeshAxis
from inspector.text.errors import InvalidInput


def parse(**fields: str) -> assemblies.Assembly:
    return assemblies.parse(fields).unwrap()


def test_the_default_is_the_references_first_array() -> None:
    assembly = parse()
    assert assembly.way == "pieces" and assembly.mistake == "nothing" and assembly.target is None
    assert (assembly.mesh_shape, assembly.axis_names) == ((2, 4), ("x", "y"))
    assert (assembly.shape, assembly.spec) == ((8, 8), (("x",), ("y",)))


def test_a_data_parallel_batch_has_rows_for_each_device() -> None:
    assert parse(loading="batch").shape == (16, 32)
    assert parse(loading="batch").spec == (("x", "y"), None)
    along_one = parse(loading="batch", batch_axes="x", rows="3", features="5")
    assert (along_one.shape, along_one.spec) == ((6, 5), (("x",), None))
    nowhere = parse(loading="batch", batch_axes="None")
    assert (nowhere.shape, nowhere.spec) == ((2, 32), (None, None))


@given(
    columns=st.integers(1, 32),
    rows=st.integers(1, 8),
    features=st.integers(1, 8),
)
def test_the_recipe_on_any_mesh_of_two_rows(columns: int, rows: int, features: int) -> None:
    mesh = Mesh((MeshAxis("x", 2), MeshAxis("y", columns)), tuple(range(2 * columns)))
    shape, spec = assemblies.recipe(rows, features, ("x", "y"), mesh)
    assert shape == (rows * 2 * columns, features)
    assert spec == (("x", "y"), None)


def test_a_tensor_parallel_batch_ends_in_the_target() -> None:
    assert parse(loading="reshard").target == (("x",), ("y",))
    assert parse(loading="reshard", target="None, y + x").target == (None, ("y", "x"))
    assert parse(loading="reshard", target="").target == (None, None)


@pytest.mark.parametrize(
    ("fields", "field", "sentence"),
    [
        ({"mesh": "2x"}, "mesh", "mesh is '2x', but must be axis sizes joined by x"),
        ({"mesh": "2x2x2x2"}, "mesh", "mesh 2x2x2x2 has 4 axes, but may have at most 3"),
        ({"mesh": "65"}, "mesh", "mesh 65 has 65 devices, but may have at most 64"),
        ({"axes": "x"}, "axes", "axes gives 1 name (x), but mesh 2x4 has 2 axes"),
        ({"shape": "8xx8"}, "shape", "shape is '8xx8', but must be sizes joined by x"),
        ({"shape": "0x8"}, "shape", "shape is '0x8', but each size must be from 1"),
        ({"shape": "2x2x2x2"}, "shape", "has 4 dimensions, but may have at most 3"),
        ({"shape": "64x65"}, "shape", "has 4,160 elements, but may have at most 4,096"),
        (
            {"mesh": "64", "axes": "x", "shape": "64x64", "spec": ""},
            "shape",
            "makes 262,144 numbers on 64 devices, at most 65,536 are allowed",
        ),
        ({"spec": "x, z"}, "spec", "spec names mesh axis 'z', but the mesh has x, y"),
        ({"spec": "x, x"}, "spec", "may use each mesh axis only once"),
        ({"spec": "x, y, None"}, "spec", "has 3 entries, but the array has 2 dimensions"),
        (
            {"loading": "batch", "rows": "0"},
            "rows",
            "rows is '0', but must be an integer from 1",
        ),
        ({"loading": "batch", "rows": ""}, "rows", "rows is '', but must be an integer from 1"),
        ({"loading": "batch", "rows": "999"}, "rows", "at most 4,096"),
        ({"loading": "batch", "batch_axes": "x+x"}, "batch_axes", "each mesh axis only once"),
        ({"loading": "reshard", "target": "q"}, "target", "target names mesh axis 'q'"),
        ({"way": "magic"}, "way", "way is 'magic', but must be one of callback, pieces"),
        ({"loading": "half"}, "loading", "loading is 'half', but must be one of array, batch"),
        ({"mistake": "typo"}, "mistake", "mistake is 'typo', but must be one of nothing"),
        ({"mistake": "copies"}, "mistake", "mistake is 'copies', but with this array"),
        ({"device": "8"}, "device", "device is '8', but must be an integer from 0 to 7"),
    ],
)
def test_the_error_of_a_wrong_field(fields: dict[str, str], field: str, sentence: str) -> None:
    parsed = assemblies.parse(fields)
    assert parsed.value is None
    assert list(parsed.problems) == [field]
    assert sentence in parsed.problems[field]
    with pytest.raises(InvalidInput):
        parsed.unwrap()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"way": "callback", "mistake": "swapped", "device": "5"},
        {
            "loading": "reshard",
            "mesh": "2x2x2",
            "axes": "a,b,c",
            "batch_axes": "c+a",
            "target": "b",
        },
        {"mesh": "1", "axes": "only", "shape": "7", "spec": ""},
    ],
)
def test_json_brings_back_the_same(fields: dict[str, str]) -> None:
    assembly = parse(**fields)
    assert typed_json.decode(assemblies.Assembly, json.loads(json.dumps(assembly.to_json()))) == assembly


def test_only_mistakes_that_can_be_made_are_offered() -> None:
    assert "copies" not in assemblies.applicable(parse())
    assert "copies" in assemblies.applicable(parse(spec="x"))
    whole = set(assemblies.applicable(parse(spec="")))
    assert not whole & {"swapped", "indivisible"} and "copies" in whole
    assert "copies" not in assemblies.applicable(parse(way="callback", spec=""))
    alone = set(assemblies.applicable(parse(mesh="1", axes="x", spec="x")))
    assert not alone & {"swapped", "same_device", "unmoved", "list_order", "copies"}
    assert list(assemblies.applicable(parse(shape="9x8"))) == ["nothing"]
    assert set(assemblies.applicable(parse(way="device_put"))) == {
        *("nothing", "swapped", "dtype", "indivisible")
    }


@pytest.mark.parametrize("spec", ["x, y", "x", "y", "None, x", "y + x"])
@pytest.mark.parametrize("device", range(8))
def test_a_swap_is_with_a_device_that_holds_another_block(spec: str, device: int) -> None:
    assembly = parse(spec=spec, mistake="swapped", device=str(device))
    other = assemblies.swap_partner(assembly)
    place = {d: tuple(divmod(d, 4)) for d in range(8)}
    used = [axis for entry in assembly.spec for axis in entry or ()]
    part = {d: tuple(place[d]["xy".index(axis)] for axis in used) for d in range(8)}
    assert part[other] != part[device]


def test_the_shape_that_jax_is_told() -> None:
    assert assemblies.given_shape(parse()) == (8, 8)
    assert assemblies.given_shape(parse(mistake="global_shape")) == (16, 8)
    assert assemblies.given_shape(parse(mistake="indivisible")) == (9, 8)
    assert assemblies.given_shape(parse(mistake="indivisible", spec="None, y")) == (8, 9)
