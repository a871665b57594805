"""Tests of imported shardings: placements in a dump, compared with JAX's own index of each device."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from inspector.hlo import shardings
from inspector.readers import hlo_text
from inspector.records.snapshot import Snapshot
from inspector.sharding import placement
from inspector.text.errors import InvalidInput


@pytest.fixture(scope="module")
def dump(placements: Path) -> tuple[Snapshot, dict[str, Any], Path]:
    folder = placements / "dump"
    expected = json.loads((placements / "expected.json").read_text())
    return hlo_text.read(folder, "dump"), expected, folder


def test_every_kind_of_placement_equals_that_of_jax(
    dump: tuple[Snapshot, dict[str, Any], Path],
) -> None:
    snapshot, expected, _ = dump
    assert snapshot.mesh is not None and snapshot.mesh.axis_names == ("data", "model")
    assert snapshot.mesh.devices == (0, 1, 3, 2, 4, 5, 7, 6)
    for path, jax_array in expected.items():
        array = snapshot.array(path)
        assert array.shape == tuple(jax_array["shape"]), path
        assert array.dtype == jax_array["dtype"], path
        assert array.memory_kind == jax_array["memory_kind"], path
        assert list(array.unreduced) == jax_array["unreduced"], path
        held = {
            str(shard.device): [list(part) for part in shard.index]
            for shard in placement.shards(array, snapshot.mesh) or ()
        }
        assert held == jax_array["shards"], path


def test_only_what_whole_mesh_axes_cannot_express_is_listed_by_device(
    dump: tuple[Snapshot, dict[str, Any], Path],
) -> None:
    snapshot, expected, _ = dump
    listed = {path for path in expected if snapshot.array(path).shards is not None}
    assert listed == {
        "jit_total/input/values/other_mesh",
        "jit_total/input/values/part_of_other_mesh",
        "jit_total/input/values/three_axes",
        "jit_doubled/output/2",
    }
    assert snapshot.array("jit_total/input/values/minor_first").spec == (("model", "data"), None)
    sums = snapshot.array("jit_reduced/input/values/sums")
    assert sums.spec == (("data",), None) and sums.replicas == 1


TEXT = """HloModule jit_f, is_scheduled=true, num_partitions={devices}

ENTRY main_spmd {{
{parameters}
  ROOT c = f32[] constant(0)
}}
"""


def text_of(written: Iterable[str], devices: int) -> str:
    parameters = "\n".join(
        f'  p{n} = bf16[8,8]{{1,0}} parameter({n}), sharding={one}, metadata={{op_name="a[{n}]"}}'
        for n, one in enumerate(written)
    )
    return TEXT.format(parameters=parameters, devices=devices)


def read(folder: Path, written: Iterable[str], devices: int = 8, **options: Any) -> Snapshot:
    path = folder / "text.hlo"
    path.write_text(text_of(written, devices))
    return hlo_text.read(path, "text.hlo", **options)


# In XLA's order, each with the index of the tile of every device, counted by hand.
TILES = [
    ("{devices=[2,4]<=[8]}", [[n // 4, n % 4] for n in range(8)]),
    ("{devices=[4,2]<=[2,4]T(1,0)}", [[n % 4, n // 4] for n in range(8)]),
    ("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", [[n // 4, 0] for n in range(8)]),
    ("{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}", [[0, n % 4] for n in range(8)]),
    ("{devices=[2,1,2,2]<=[8] last_tile_dims={manual, replicated}}",
     [[n // 4, 0] for n in range(8)]),
    ("{devices=[2,2,2]0,1,2,3,4,5,6,7 last_tile_dim_replicate}",
     [[n // 4, n // 2 % 2] for n in range(8)]),
    ("{devices=[2,4]7,6,5,4,3,2,1,0}", [[1 - n // 4, 3 - n % 4] for n in range(8)]),
    ("{replicated}", [[0, 0]] * 8),
    ("{mesh['a'=2,'b'=4], [{'b'}, {'a'}]}", [[n % 4, n // 4] for n in range(8)]),
    ("{mesh['a'=2,'b'=4], [{'b':(1)2}, {'b':(2)2}]}", [[n // 2 % 2, n % 2] for n in range(8)]),
    ("{mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)), [{'a'}, {'b', ?}]}",
     [[n % 2, n // 2] for n in range(8)]),
    ("{mesh['a'=8], replicated}", [[0, 0]] * 8),
    # Tiles that cut through a dimension of the iota.
    ("{devices=[2,4]<=[4,2]T(1,0)}", [[n % 2, n // 2] for n in range(8)]),
    ("{devices=[3,2]<=[2,3]T(1,0)}", [[n % 3, n // 3] for n in range(6)]),
    ("{devices=[2,3]<=[2,3]T(1,0)}", [[0, 0], [0, 2], [1, 1], [0, 1], [1, 0], [1, 2]]),
]  # fmt: skip


@pytest.mark.parametrize(("written", "tiles"), TILES, ids=[text for text, _ in TILES])
def test_tiles_of_each_device(written: str, tiles: list[list[int]]) -> None:
    parsed = shardings.parse(written)
    assert shardings.indices(parsed, 2, len(tiles)).tolist() == tiles
    mesh = shardings.derived_mesh([parsed], len(tiles))
    spec = None if mesh is None else shardings.spec_on(parsed, mesh, 2)
    if spec is not None and mesh is not None:  # the spec on the derived mesh says the same
        named = shardings.NamedMesh(mesh.axes)
        strides, sizes = named.strides, dict(named.axes)
        for device, tile in enumerate(tiles):
            for axes, index in zip(spec, tile, strict=True):
                at = 0
                for axis in axes or ():
                    at = at * sizes[axis] + device // strides[axis] % sizes[axis]
                assert at == index


@pytest.mark.parametrize(
    "written",
    ["{devices=[2,4]<=[9]}", "{devices=[0]<=[0]}", "{devices=[2]0,0}", "{other}", "{devices=[2]}",
     "{mesh['a'=2], [{'b'}]}", "{mesh['a'=2], [{'a':(3)2}]}",
     "{devices=[99999999,99999999]<=[99999999,99999999]}"],
)  # fmt: skip
def test_text_that_is_not_a_sharding_makes_only_its_array_unknown(tmp_path: Path, written: str) -> None:
    snapshot = read(tmp_path, [written, "{devices=[2,4]<=[8]}"])
    wrong, right = snapshot.arrays[:2]
    assert wrong.spec is None and wrong.shards is None and wrong.shard_shape == (8, 8)
    assert right.spec == (("axis_0",), ("axis_1",)) and right.shape == (16, 32)


def test_the_given_mesh_names_the_axes_of_a_text_without_a_mesh(tmp_path: Path) -> None:
    mesh = shardings.NamedMesh((("data", 2), ("model", 4)))
    snapshot = read(tmp_path, ["{devices=[2,4]<=[8]}"], mesh=mesh)
    assert snapshot.mesh is not None and snapshot.mesh.axis_names == ("data", "model")
    assert snapshot.arrays[0].spec == (("data",), ("model",))
    one_axis = shardings.NamedMesh((("all", 8),))
    listed = read(tmp_path, ["{devices=[2,4]<=[8]}"], mesh=one_axis).arrays[0]
    assert listed.spec is None and listed.shards is not None
    assert [shard.index for shard in listed.shards][5] == ((8, 16), (8, 16))
    with pytest.raises(InvalidInput, match="8"):
        read(tmp_path, ["{devices=[2,4]<=[8]}"], mesh=shardings.NamedMesh((("data", 4),)))


def test_few_bytes_for_many_devices_list_a_limited_number_of_shards(tmp_path: Path) -> None:
    parts = [f"{{mesh['a'=131072], [{{'a':({2**n}){2 ** (17 - n)}}}, {{}}]}}" for n in range(1, 17)]
    snapshot = read(tmp_path, parts * 10, 131_072)
    listed = sum(len(array.shards or ()) for array in snapshot.arrays)
    assert listed == 131_072
    assert "sharding-unknown" in [finding.code for finding in snapshot.findings]
