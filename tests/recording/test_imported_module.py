"""Tests of StableHLO: shardings after propagation equal those of JAX's own compile of the same program."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.mlir import ir
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from inspector.hlo.shardings import NamedMesh
from inspector.layout.plan import NOT_PARTITIONED
from inspector.readers import import_file
from inspector.recording import imported_module
from inspector.records import snapshot
from inspector.records.snapshot import Snapshot
from inspector.sharding import placement as sharding
from inspector.text.errors import InvalidInput

MESH = AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)


def opened(path: Path, kind: str | None = None) -> Snapshot:
    payload: dict[str, Any] = {"path": str(path), "name": path.name, "kind": kind, "step": None}
    payload |= {"folder": None, "mesh": None}
    return snapshot.from_json(json.loads(import_file.import_job(payload, lambda *_, **__: None)["snapshot"]))


def lowered(mesh: Any) -> Any:
    def step(state: dict[str, Any], x: Any) -> Any:
        def loss(params: dict[str, Any]) -> Any:
            return (jax.nn.relu(x @ params["up"]) @ params["down"]).sum()

        gradient = jax.grad(loss)(state["params"])
        return {"params": jax.tree.map(lambda a, b: a - b, state["params"], gradient)}

    def shape(shape: tuple[int, ...], *spec: Any) -> Any:
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    params = {"up": shape((16, 32), "data", "model"), "down": shape((32, 16), "model", "data")}
    return jax.jit(step).trace({"params": params}, shape((8, 16), "data")).lower(lowering_platforms=("cpu",))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(lowered(MESH).as_text(debug_info=True))


def test_text_of_a_lowered_program_is_propagated_with_origins(tmp_path: Path, text: str) -> None:
    path = tmp_path / "step.mlir"
    path.write_text(text)
    for kind in (None, "stablehlo", "hlo"):
        snapshot = opened(path, kind)
        assert snapshot.source.kind == "stablehlo"
    assert snapshot.mesh is not None and snapshot.mesh.sizes == {"data": 2, "model": 4}
    up = snapshot.array("jit_step/input/state/params/up")
    assert (up.group, up.spec, up.shard_shape) == ("params", (("data",), ("model",)), (8, 8))
    assert snapshot.array("jit_step/output/params/up").spec == up.spec
    (program,) = snapshot.programs
    assert program.stage == "partitioned" and program.flops_per_device
    gathers = {
        collective.arrays: collective
        for collective in program.collectives or ()
        if collective.op == "all-gather"
    }
    gather = gathers[(up.path,)]
    assert gather.mesh_axes == ("data",)
    assert [(origin.mesh_axis, origin.from_) for origin in gather.origins or ()] == [("data", up.path)]
    assert {array.group for array in snapshot.arrays} >= {"params", "output", "activation", "gradient"}


def test_bytecode_and_text_without_names_have_the_same_shardings(tmp_path: Path, text: str) -> None:
    module = lowered(MESH)
    specs = []
    with module.compiler_ir("stablehlo").context:
        (tmp_path / "a.mlirbc").write_bytes(module_bytecode(module.compiler_ir("stablehlo")))
    (tmp_path / "b.mlir").write_text(module.as_text())
    (tmp_path / "c.mlir").write_text(text)
    for name in ("a.mlirbc", "b.mlir", "c.mlir"):
        arrays = opened(tmp_path / name).arrays
        specs.append([array.spec for array in arrays if array.group not in ("activation", "gradient")])
    assert specs[0] == specs[1] == specs[2] and None not in specs[0]


def module_bytecode(module: Any) -> bytes:
    import io

    file = io.BytesIO()
    module.operation.write_bytecode(file)
    return file.getvalue()


@pytest.mark.nightly
def test_every_kind_of_placement_equals_that_of_jax(placements: Path) -> None:
    expected = json.loads((placements / "expected.json").read_text())
    modules = {path.parent.name: path for path in placements.glob("dump/module_*/module.mlir")}
    assert modules
    compared = set()
    for folder, path in modules.items():
        name = folder.partition(".")[2]
        wanted = {key: one for key, one in expected.items() if key.startswith(f"{name}/")}
        if not wanted:
            continue
        snapshot = opened(path)
        assert snapshot.mesh is not None
        positions = (0, 1, 3, 2, 4, 5, 7, 6)
        arrays = {array.path: array for array in snapshot.arrays}
        for key, one in wanted.items():
            array = arrays[key]
            assert array.shape == tuple(one["shape"]) and array.dtype == one["dtype"], key
            assert array.memory_kind == one["memory_kind"], key
            assert list(array.unreduced) == one["unreduced"], key
            held = {
                str(positions[shard.device]): [list(part) for part in shard.index]
                for shard in sharding.shards(array, snapshot.mesh) or ()
            }
            assert held == one["shards"], key
            compared.add(key)
    assert compared == expected.keys()


def test_a_module_without_a_mesh_has_arrays_and_says_that_it_has_no_mesh(tmp_path: Path) -> None:
    path = tmp_path / "plain.mlir"
    path.write_text(jax.jit(lambda x: x * 2).lower(np.ones((4, 8), np.float32)).as_text())
    snapshot = opened(path)
    assert snapshot.mesh is None and snapshot.arrays[0].shape == (4, 8)
    assert "mesh-unknown" in [finding.code for finding in snapshot.findings]


@pytest.mark.parametrize(
    "content",
    [b"module {", b"module @a {\n  func.func private @f()\n}", b"ML\xefR\x00\x01\x02",
     b"module @a {\n  what.is @this\n}", b"module @a {\n  stablehlo.constant\n}"],
)  # fmt: skip
def test_other_text_is_refused_with_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.mlir"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"bad\.mlir"):
        opened(path)


def test_a_mesh_of_real_devices_gives_the_same(tmp_path: Path, text: str) -> None:
    if jax.device_count() < 8:
        pytest.skip("needs 8 devices")
    mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ("data", "model"))
    path = tmp_path / "real.mlir"
    path.write_text(lowered(mesh).as_text(debug_info=True))
    real = [(array.path, array.spec) for array in opened(path).arrays]
    path.write_text(text)
    assert [(array.path, array.spec) for array in opened(path).arrays] == real


# Of another front end: shardings as text, quotes escaped twice, and a dimension that is not divisible.
UNEVEN = r"""
module @step attributes {mhlo.frontend_attributes = {xla.sdy.meshes =
    "{mesh = #sdy.mesh<[\\\22data\\\22=2, \\\22model\\\22=4]>}"}, mhlo.num_partitions = 8 : i64} {
  func.func @main(
    %arg0: tensor<7x10xf32> {mhlo.frontend_attributes = {xla.sdy.sharding =
      "#sdy.sharding<@mesh, [{\\\22model\\\22}, {\\\22data\\\22}]>"},
      mhlo.sharding = "{devices=[4,2]<=[2,4]T(1,0)}"},
    %arg1: tensor<10x3xf32> {mhlo.frontend_attributes = {xla.sdy.sharding =
      "#sdy.sharding<@mesh, [{\\\22data\\\22}, {}]>"},
      mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"}) -> tensor<7x3xf32> {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0]
        : (tensor<7x10xf32>, tensor<10x3xf32>) -> tensor<7x3xf32>
    %1 = stablehlo.tanh %0 : tensor<7x3xf32>
    return %1 : tensor<7x3xf32>
  }
}
"""


def test_shardings_as_text_and_an_axis_that_xla_drops(tmp_path: Path) -> None:
    """Compiled by XLA: argument 0 is f32[7,5], an all-reduce of f32[2,3], an all-gather of f32[8,3]."""
    path = tmp_path / "step.mlir"
    path.write_text(UNEVEN)
    snapshot = opened(path)
    assert snapshot.mesh is not None and snapshot.mesh.sizes == {"data": 2, "model": 4}
    argument = snapshot.array("step/input/0")
    assert (argument.spec, argument.shard_shape) == ((None, ("data",)), (7, 5))
    (program,) = snapshot.programs
    moved = {
        (collective.op, collective.mesh_axes): collective.payload_bytes
        for collective in program.collectives or ()
    }
    assert moved == {("all-reduce", ("data",)): 2 * 3 * 4, ("all-gather", ("model",)): 8 * 3 * 4}
    (note,) = (finding for finding in snapshot.findings if finding.code == "sharding-not-given")
    assert "model" in note.message and "step/input/0" in note.message
    assert sum(finding.code == "sharding-not-given" for finding in snapshot.findings) == 1


@pytest.mark.nightly_but_first
@pytest.mark.parametrize(
    ("of_module", "of_argument"),
    [
        ('mhlo.frontend_attributes = {xla.sdy.meshes = "{mesh = #sdy.mesh<[garbage"}', "[8]<=[8]"),
        ('mhlo.frontend_attributes = {xla.sdy.meshes = "3 : i64"}', "[8]<=[8]"),
        ('mhlo.num_partitions = "x"', "[8]<=[8]"),
        ("mhlo.num_partitions = 8 : i64", None),
        ("mhlo.num_partitions = 8 : i64", "[2,3]<=[6]"),
        ("mhlo.num_partitions = 8 : i64", "nonsense"),
        ("mhlo.num_partitions = 8 : i64", "[2,2,2]<=[8]"),
        ("mhlo.num_partitions = 1000000000 : i64", "[1000000000]<=[1000000000]"),
        ("mhlo.num_partitions = 131072 : i64", "[8]<=[8]"),
    ],
)
def test_shardings_that_are_not_valid_are_unknown(
    of_module: str, of_argument: str | None, tmp_path: Path
) -> None:
    sharding = "3 : i64" if of_argument is None else f'"{{devices={of_argument}}}"'
    path = tmp_path / "step.mlir"
    path.write_text(
        f"module @step attributes {{{of_module}}} {{ func.func @main(%0: tensor<8xf32> {{mhlo.sharding = "
        f"{sharding}}}) -> tensor<8xf32> {{ return %0 : tensor<8xf32> }} }}"
    )
    snapshot = opened(path)
    assert snapshot.array("step/input/0").spec is None
    said = " ".join(finding.message for finding in snapshot.findings)
    assert "Error" not in said and "nothing in it is sharded" not in said


@pytest.mark.parametrize("attribute", ["3 : i64", "unit", '["x"]', '"\\FF"', "@mesh", "{}"])
def test_names_and_memory_that_are_no_text_are_unknown(attribute: str, tmp_path: Path) -> None:
    path = tmp_path / "step.mlir"
    path.write_text(
        f"module @step {{ func.func @main(%0: tensor<8xf32> {{mhlo.memory_kind = {attribute}}}) -> "
        f"(tensor<8xf32> {{jax.result_info = {attribute}}}) {{ return %0 : tensor<8xf32> }} }}"
    )
    paths = {array.path: array.memory_kind for array in opened(path).arrays}
    assert set(paths) == {"step/input/0", "step/output/0"} and len({*paths.values()}) == 1


def test_a_part_of_an_axis_of_a_mesh_that_cannot_be_emulated_is_a_sentence(tmp_path: Path) -> None:
    """Such a mesh is scaled from smaller ones, which lack this part. MLIR's error contains the module."""
    path = tmp_path / "step.mlir"
    path.write_text(
        'module @step { sdy.mesh @mesh = <["a"=131072]> func.func @main(%0: tensor<8x8xf32> '
        '{sdy.sharding = #sdy.sharding<@mesh, [{"a":(32768)4}, {}]>}) -> tensor<8x8xf32> { %1 = '
        "stablehlo.dot %0, %0 : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32> "
        "return %1 : tensor<8x8xf32> } }"
    )
    snapshot = opened(path)
    (note,) = (finding for finding in snapshot.findings if finding.code == NOT_PARTITIONED)
    assert "part of a mesh axis" in note.message and "tensor<" not in note.message


def test_a_given_mesh_of_other_devices_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "step.mlir"
    path.write_text(
        "module @step attributes {mhlo.num_partitions = 8 : i64} { func.func @main(%0: tensor<8xf32> "
        '{mhlo.sharding = "{devices=[8]<=[8]}"}) -> tensor<8xf32> { return %0 : tensor<8xf32> } }'
    )
    payload: dict[str, Any] = {"path": str(path), "name": path.name, "kind": None, "step": None}
    payload |= {"folder": None, "mesh": [["a", 2], ["b", 2]]}
    with pytest.raises(InvalidInput, match=r"^--mesh has 4 devices"):
        import_file.import_job(payload, lambda *_, **__: None)


def test_nothing_of_a_module_stays_when_the_next_is_read(tmp_path: Path, text: str) -> None:
    """A context of MLIR has all constants of the modules that were parsed in it."""

    def contexts() -> int:
        gc.collect()
        return sum(isinstance(value, ir.Context) for value in gc.get_objects())

    path = tmp_path / "step.mlir"
    path.write_text(text)
    opened(path)
    before = contexts()
    for _ in range(3):
        opened(path)
    assert contexts() <= before


OF_ONE_DEVICE = """
module @graph {
  func.func @main(%arg0: tensor<128x32xf32>) -> tensor<128x32xf32> {
    %0 = "stablehlo.all_reduce"(%arg0) <{
      replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>
    }> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<128x32xf32>) -> tensor<128x32xf32>
    return %0 : tensor<128x32xf32>
  }
}
"""


def test_a_program_of_one_device_has_its_collectives(tmp_path: Path) -> None:
    """As PyTorch/XLA lowers a step: the groups are in the text, and no mesh."""
    path = tmp_path / "graph.mlir"
    path.write_text(OF_ONE_DEVICE)
    for given, axes in ((None, None), (NamedMesh((("dp", 2), ("tp", 4))), ("tp",))):
        snapshot = imported_module.read(path, "graph.mlir", given)
        (collective,) = snapshot.programs[0].collectives or ()
        assert (collective.op, collective.mesh_axes) == ("all-reduce", axes)
        assert (collective.groups, collective.group_size) == (2, 4)
        assert collective.wire_bytes_per_device == 2 * 128 * 32 * 4 * 3 // 4
        assert snapshot.programs[0].devices == 8


def test_a_given_mesh_is_used_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "graph.mlir"
    path.write_text(OF_ONE_DEVICE)
    with pytest.raises(InvalidInput, match="dp 4 × tp 4"):
        imported_module.read(path, "graph.mlir", NamedMesh((("dp", 4), ("tp", 4))))
    path.write_text(
        "module @plain {\n func.func @main(%a: tensor<8xf32>) -> tensor<8xf32> {\n"
        "  return %a : tensor<8xf32>\n }\n}\n"
    )
    with pytest.raises(InvalidInput, match="no shardings and no collectives"):
        imported_module.read(path, "plain.mlir", NamedMesh((("dp", 2),)))
