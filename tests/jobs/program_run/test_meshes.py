"""A program with two meshes under `run`: specs, axes and bytes of each mesh, and moves between them."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from inspector import audit
from inspector.answers import reshards
from inspector.jobs.program_run import folder_snapshot
from inspector.machines import hardware
from inspector.machines.hardware import Torus, least_seconds
from inspector.records import program_run, snapshot
from inspector.records.snapshot import Array, Reshard, Snapshot
from inspector.sharding import device_holdings
from inspector.sharding import placement as sharding
from inspector.sharding.meshes import mesh_of_all_devices
from inspector.sharding.totals import bytes_by_device
from tests.jobs.program_run.test_program_run import PLAIN, RUN, call
from tests.paths import CASES

pytestmark = pytest.mark.nightly

REPORTED = CASES / "reported" / "two_meshes" / "reshard.py"

# An actor and a rollout whose meshes have axes of equal names. It prints what JAX knows.
TWO_MESHES = """
import json, os, threading
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

devices = np.array(jax.devices())
actor = Mesh(devices[:4].reshape(2, 2), ("fsdp", "tp"))
rollout = Mesh(devices[4:].reshape(1, 4), ("fsdp", "tp"))
params = {
    "w": jax.device_put(jnp.ones((16, 8)), NamedSharding(actor, P("fsdp", "tp"))),
    "b": jax.device_put(jnp.ones(8, "bfloat16"), NamedSharding(actor, P("tp"))),
}
step = jax.jit(lambda params, x: jax.tree.map(lambda p: p - (x @ params["w"]).sum().astype(p.dtype), params))
generate = jax.jit(lambda weights, y: y @ weights["w"] @ weights["w"].T)
x = jax.device_put(jnp.ones((4, 16)), NamedSharding(actor, P("fsdp")))
y = jax.device_put(jnp.ones((4, 16)), NamedSharding(rollout, P()))
on_rollout = {"w": NamedSharding(rollout, P(None, "tp")), "b": NamedSharding(rollout, P("tp"))}
for number in range(3):
    params = step(params, x)
    weights = jax.device_put(params, on_rollout)
    tokens = generate(weights, y)

turned = [jax.lax.with_sharding_constraint(params["w"], NamedSharding(actor, P("tp"))) for _ in range(2)]
params["w"] = jax.device_put(params["w"], NamedSharding(actor, P("fsdp", "tp")))  # it is there


def copy():
    for _ in range(25):
        jax.device_put(params["b"], devices[7])


threads = [threading.Thread(target=copy) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
try:
    jax.lax.with_sharding_constraint(x, NamedSharding(rollout, P()))
except ValueError as error:
    print(type(error).__name__, len(str(error)))


def bytes_on_devices():
    held = {}
    arrays = {"params/w": params["w"], "params/b": params["b"], "weights/w": weights["w"], "x": x, "y": y}
    arrays |= {"weights/b": weights["b"], "tokens": tokens, "turned/0": turned[0], "turned/1": turned[1]}
    for array in arrays.values():
        for shard in array.addressable_shards:
            held[shard.device.id] = held.get(shard.device.id, 0) + shard.data.nbytes
    specs = {path: [str(array.sharding.spec), sorted(d.id for d in array.sharding.device_set)]
             for path, array in arrays.items()}
    print(json.dumps({"held": held, "specs": specs}))


bytes_on_devices()
raise SystemExit(3)
"""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The program directly and under `run`."""
    folder = tmp_path_factory.mktemp("two_meshes")
    (folder / "two.py").write_text(TWO_MESHES)
    direct = call(folder, "two.py")
    recorded = call(folder, *RUN, "two.py")
    return SimpleNamespace(
        folder=folder / "recorded",
        direct=direct,
        recorded=recorded,
        printed=json.loads(direct.stdout.splitlines()[-1]),
        run=program_run.read(folder / "recorded"),
        snapshot=folder_snapshot.read(folder / "recorded"),
    )


def without_live_arrays(two: Any, tmp_path: Path) -> Path:
    """Copy the record without its Snapshot of live arrays, and return the folder."""
    alone = tmp_path / "alone"
    (alone / "programs").mkdir(parents=True)
    for file in two.folder.rglob("*.json"):
        if file.name != program_run.SNAPSHOT:
            (alone / file.relative_to(two.folder)).write_text(file.read_text())
    return alone


def test_the_program_behaves_as_without_a_recorder(two: Any) -> None:
    assert two.direct.returncode == two.recorded.returncode == 3, two.recorded.stderr
    assert two.recorded.stdout == two.direct.stdout
    assert two.run.problems == ()


def test_each_array_has_the_spec_of_its_own_mesh(two: Any) -> None:
    snapshot: Snapshot = two.snapshot
    assert {mesh.devices for mesh in snapshot.meshes} == {(0, 1, 2, 3), (4, 5, 6, 7)}
    for path, (spec, devices) in two.printed["specs"].items():
        array = snapshot.array(path)
        mesh = snapshot.mesh_of(array)
        assert mesh is not None and list(mesh.devices) == devices, path
        whole = eval(spec.replace("PartitionSpec", "P"), {"P": lambda *entries: entries})
        entries = (*whole, *(None,) * (len(array.shape or ()) - len(whole)))
        assert array.spec == tuple(None if entry is None else (entry,) for entry in entries), path


def test_bytes_per_device_are_those_of_jax(two: Any) -> None:
    snapshot: Snapshot = two.snapshot
    expected = {int(device): held for device, held in two.printed["held"].items()}
    mine = [array for array in snapshot.arrays if array.path in two.printed["specs"]]
    assert bytes_by_device(snapshot, mine) == expected
    every = mesh_of_all_devices(snapshot)
    assert every is not None and every.devices == tuple(range(8))
    for device in every.devices:
        held = device_holdings.holdings(snapshot, [device])
        pieces = [piece for piece in held.pieces if piece.path in two.printed["specs"]]
        assert sum(piece.bytes or 0 for piece in pieces) == expected[device]


def test_each_program_has_the_axes_of_its_own_mesh(two: Any) -> None:
    snapshot: Snapshot = two.snapshot
    devices = {"step": (0, 1, 2, 3), "generate": (4, 5, 6, 7)}
    name = two.run.programs[0].name
    for program in snapshot.programs:
        mesh = snapshot.mesh_of(program)
        assert mesh is not None and mesh.devices == devices["step" if program.name == name else "generate"]
        assert program.collectives is not None
        for collective in program.collectives:
            assert collective.mesh_axes is not None and set(collective.mesh_axes) <= set(mesh.axis_names)
            assert collective.group_size == mesh.ways(collective.mesh_axes)


def test_each_partitioned_program_has_the_mesh_of_its_compiled_one(two: Any, tmp_path: Path) -> None:
    for recorded in (two.snapshot, folder_snapshot.read(without_live_arrays(two, tmp_path))):
        meshes = {program.name: recorded.mesh_of(program) for program in recorded.programs}
        assert {program.name: recorded.mesh_of(program) for program in recorded.partitioned} == meshes
        assert len(set(meshes.values())) == 2
        for part in recorded.on_each_mesh():
            # Each is partitioned for each kind of machine.
            platforms = [(program.name, program.platform) for program in part.partitioned]
            assert len(platforms) == len(set(platforms))
            assert {name for name, _ in platforms} == {program.name for program in part.programs}
            assert snapshot.from_json(json.loads(snapshot.dumps(part))) == part


def moves(snapshot: Snapshot) -> dict[tuple[str, int], Reshard]:
    return {(reshard.operation, reshard.count): reshard for reshard in snapshot.reshards}


def test_moves_are_counted_with_their_bytes(two: Any) -> None:
    reshards = moves(two.snapshot)
    assert len(reshards) == len(two.snapshot.reshards) == 3
    copied = reshards["device_put", 2]
    line = 1 + TWO_MESHES.splitlines().index("    weights = jax.device_put(params, on_rollout)")
    assert (copied.line, copied.executions) == (f"two.py:{line}", 3)
    assert (copied.source_devices, copied.target_devices) == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert copied.bytes == 16 * 8 * 4 + 8 * 2
    assert copied.moved == copied.bytes  # no copies on the rollout, and no device has it before
    specs = {arrays.shape: (arrays.source_spec, arrays.target_spec) for arrays in copied.arrays}
    assert specs[16, 8] == ((("fsdp",), ("tp",)), (None, ("tp",)))
    constrained = reshards["with_sharding_constraint", 1]
    assert constrained.executions == 2
    to_device = reshards["device_put", 1]
    assert (to_device.executions, to_device.target_devices) == (100, (7,))
    assert to_device.target_mesh is None and to_device.moved == 8 * 2


def test_the_sections_name_meshes_and_devices(two: Any) -> None:
    snapshot: Snapshot = two.snapshot
    (section,) = reshards.sections(snapshot, None)
    assert section.heading == "Moves between meshes"
    plain = reshards.plain(snapshot, hardware.chip("v5e"))
    assert {one["moved_bytes"] for one in plain} == {reshard.moved for reshard in snapshot.reshards}
    assert all(one["unknown_seconds"] is None for one in plain)
    assert {one["unknown_seconds"] for one in reshards.plain(snapshot, None)} == {reshards.NO_CHIP}


def test_the_least_time_is_that_of_the_links(two: Any) -> None:
    copied = moves(two.snapshot)["device_put", 2]
    chip = hardware.chip("v5p")
    assert isinstance(chip.network, Torus)
    received = Counter(dict.fromkeys(copied.target_devices, 0))
    for _, target, size in copied.routes or ():
        received[target] += size
    assert set(received.values()) == {(16 * 8 * 4 + 8 * 2) // 4}
    seconds = least_seconds(copied, chip)
    links = 6 * chip.network.bytes_per_second
    assert seconds == pytest.approx((16 * 8 * 4 + 8 * 2) / 4 / links)


def test_without_live_arrays_each_program_keeps_its_mesh(two: Any, tmp_path: Path) -> None:
    result = folder_snapshot.read(without_live_arrays(two, tmp_path))
    assert [program.name for program in result.programs] == [program.name for program in two.run.programs]
    meshes = [result.mesh_of(program) for program in result.programs]
    assert [mesh and mesh.devices for mesh in meshes] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    for array in result.arrays:
        owner = result.program(array.program or "")
        assert owner is not None and result.mesh_of(owner) == result.mesh_of(array)
    assert result.reshards == two.snapshot.reshards
    assert snapshot.from_json(json.loads(snapshot.dumps(result))) == result


def test_for_a_target_live_arrays_keep_their_mesh_and_are_audited_once(two: Any) -> None:
    folder = two.folder.with_name("target")
    arguments = [*RUN[:-2], "--target", "tpu:v5e:2x4", "-o", str(folder)]
    done = call(two.folder.parent, *arguments, "two.py")
    assert done.returncode == 3, done.stderr
    snapshot = folder_snapshot.read(folder)
    assert snapshot.source.kind == "tpu"
    here = {array.path: array for array in two.snapshot.arrays}
    assert {array.path for array in snapshot.arrays} == here.keys()
    # The emulated device n is the nth device of the target.
    all_devices = mesh_of_all_devices(snapshot)
    assert all_devices is not None and len(all_devices.devices) == 8
    for array in snapshot.arrays:
        expected = sharding.shards(here[array.path], two.snapshot.mesh_of(here[array.path]))
        shards = sharding.shards(array, snapshot.mesh_of(array))
        assert {(all_devices.devices.index(shard.device), shard.index) for shard in shards} == {
            (one.device, one.index) for one in expected
        }
    checked = [finding for finding in snapshot.findings if finding.code in audit.CODES]
    assert checked == list(audit.audit(snapshot))
    assert len({finding.message for finding in checked}) == len(checked)


def test_live_arrays_without_a_device_of_the_target_are_named(two: Any, tmp_path: Path) -> None:
    """A program for a target on 4 of 8 devices: where the target has the others is unknown."""
    folder = tmp_path / "half"
    shutil.copytree(two.folder.with_name("target"), folder)
    run = program_run.read(folder)
    program_run.write(replace(run, programs=run.programs[:1]), folder)
    snapshot = folder_snapshot.read(folder)
    (mesh,) = snapshot.meshes
    on_mesh = {a.path for a in two.snapshot.arrays if set(_devices(two.snapshot, a)) <= {0, 1, 2, 3}}
    assert {array.path for array in snapshot.arrays} == on_mesh
    assert all(set(_devices(snapshot, array)) <= set(mesh.devices) for array in snapshot.arrays)
    (note,) = (finding for finding in snapshot.findings if finding.code == folder_snapshot.LEFT_OUT)
    missing = len(two.snapshot.arrays) - len(on_mesh)
    assert missing and note.message.startswith(f"{missing} live arrays")


def _devices(snapshot: Snapshot, array: Array) -> list[int]:
    return [shard.device for shard in sharding.shards(array, snapshot.mesh_of(array)) or ()]


# What JAX refuses in each function that is replaced, printed whole.
REFUSED = """
import traceback
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

uneven = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), P("x"))
array = jax.device_put(jnp.ones(16), uneven)
for refused in (jax.device_put, jax.lax.with_sharding_constraint):
    try:
        refused(jnp.ones(3), uneven)
    except ValueError:
        traceback.print_exc()
try:
    jax.sharding.reshard(array, uneven)
except ValueError:
    traceback.print_exc()
array.delete()
jax.device_put(array, jax.devices()[1])
"""


@pytest.mark.parametrize("filtering", ["auto", "off"])
def test_tracebacks_of_refused_moves_are_unchanged(
    tmp_path: Path, filtering: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PLAIN, "JAX_TRACEBACK_FILTERING", filtering)
    (tmp_path / "refused.py").write_text(REFUSED)
    direct = call(tmp_path, "refused.py")
    recorded = call(tmp_path, *RUN, "refused.py")
    assert direct.returncode == recorded.returncode == 1
    *own, _ = recorded.stderr.splitlines(keepends=True)
    assert "".join(own) == direct.stderr and direct.stderr.count("Traceback") >= 4


@pytest.mark.skipif(not REPORTED.is_file(), reason="needs ../shared/cases/reported/two_meshes")
def test_the_reported_program(tmp_path: Path) -> None:
    (tmp_path / "reshard.py").write_text(REPORTED.read_text())
    ended = call(tmp_path, *RUN, "reshard.py")
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr
    snapshot = folder_snapshot.read(tmp_path / "recorded")
    params = [array for array in snapshot.arrays if "params" in array.path]
    held = bytes_by_device(snapshot, params)
    assert held == dict.fromkeys(range(8), 2 * 2**20)
    assert all(array.spec is not None for array in params)
    assert sharding.shards(snapshot.array("params/up"), snapshot.mesh_of(snapshot.array("params/up")))  # type: ignore[arg-type]
    (moved,) = snapshot.reshards
    assert (moved.executions, moved.count, moved.bytes, moved.moved) == (3, 2, 2**23, 2**23)
    assert device_holdings.holdings(snapshot, [0]).bytes == device_holdings.holdings(snapshot, [1]).bytes
