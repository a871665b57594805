"""Tests of assembled arrays against arrays that JAX makes directly."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from inspector.guides import assembly as assemblies
from inspector.guides.assembly import Assembled, Assembly, pieces
from inspector.guides.assembly.script import script
from inspector.learn.assemble import assemble, make_array
from inspector.records import snapshot, typed_json
from inspector.sharding import placement

ARRAYS = {
    "reference": {},
    "rows cut, columns copied": {"spec": "x"},
    "everywhere the same": {"spec": ""},
    "axes the other way round": {"spec": "y + x"},
    "three dimensions": {"shape": "2x4x6", "spec": "None, y, x"},
    "three axes": {"mesh": "2x2x2", "axes": "a,b,c", "shape": "4x4", "spec": "c+a, b"},
    "one dimension": {"mesh": "8", "axes": "d", "shape": "8", "spec": "d"},
    "data-parallel": {"loading": "batch"},
    "data-parallel with copies": {"loading": "batch", "batch_axes": "x"},
    "tensor-parallel": {"loading": "reshard", "features": "8"},
    "not divided": {"shape": "9x8"},
}


def every_case() -> list[tuple[str, str, str]]:
    cases = []
    for way, name in itertools.product(assemblies.WAYS, ARRAYS):
        whole = assemblies.parse(ARRAYS[name] | {"way": way}).unwrap()
        cases += [(way, name, mistake) for mistake in assemblies.applicable(whole)]
    return cases


def ask(way: str, name: str, mistake: str = "nothing", device: int = 3) -> Assembly:
    fields = ARRAYS[name] | {"way": way, "mistake": mistake, "device": str(device)}
    return assemblies.parse(fields).unwrap()


def by_hand(asked: Assembly, spec: tuple) -> jax.Array:
    """Return the array that `device_put` makes from the same numbers."""
    devices = np.array(jax.devices()[: asked.devices]).reshape(asked.mesh_shape)
    mesh = Mesh(devices, asked.axis_names)
    numbers = np.arange(np.prod(asked.shape), dtype=np.int32).reshape(asked.shape)
    return jax.device_put(numbers, NamedSharding(mesh, PartitionSpec(*spec)))


@pytest.mark.parametrize("name", [name for name in ARRAYS if name != "not divided"])
@pytest.mark.parametrize("way", assemblies.WAYS)
def test_every_way_gives_the_same_array_as_jax(way: str, name: str) -> None:
    asked = ask(way, name)
    assembled = make_array(asked)
    assert assembled.refusal is None and pieces.faults(asked, assembled) == ()
    stages = [(assembled.joined, asked.spec)]
    if asked.target is not None:
        stages.append((assembled.resharded, asked.target))
    for stage, spec in stages:
        want = by_hand(asked, spec)
        indices = want.sharding.devices_indices_map(want.shape)
        held = {contents.device: contents for contents in stage.contents}
        assert stage.array.shape == want.shape and stage.array.dtype == "int32"
        placed = placement.shards(stage.array, asked.mesh())
        for shard in want.addressable_shards:
            contents = held[shard.device.id]
            assert contents.shape == shard.data.shape
            assert list(contents.values) == np.asarray(shard.data).ravel().tolist()
            mine = next(one for one in placed if one.device == shard.device.id)
            bounds = tuple(
                part.indices(size)[:2] for part, size in zip(indices[shard.device], want.shape, strict=True)
            )
            assert (mine.index, mine.replica) == (bounds, shard.replica_id)
        assert pieces.wrong_elements(asked, stage) == {}


def test_the_references_shapes() -> None:
    """Test shape (8, 8) on 2 × 4 devices, and two rows of 32 features for each device."""
    assembled = make_array(ask("pieces", "reference"))
    assert assembled.joined.array.shape == (8, 8)
    assert [piece.shape for piece in assembled.pieces] == [(4, 2)] * 8
    assert [piece.on for piece in assembled.pieces] == list(range(8))
    assert assembled.pieces[3].values == (6, 7, 14, 15, 22, 23, 30, 31)
    batch = make_array(ask("pieces", "data-parallel"))
    assert batch.joined.array.shape == (2 * 8, 32)
    assert {contents.shape for contents in batch.joined.contents} == {(2, 32)}
    assert batch.joined.array.spec == (("x", "y"), None)


@pytest.mark.parametrize("columns", [1, 2, 3, 8])
def test_the_reference_on_other_meshes_of_two_rows(columns: int) -> None:
    mesh = f"2x{columns}"
    batch = make_array(assemblies.parse({"mesh": mesh, "loading": "batch"}).unwrap())
    assert batch.joined.array.shape == (2 * 2 * columns, 32)
    assert {contents.shape for contents in batch.joined.contents} == {(2, 32)}
    if 8 % columns == 0:
        whole = make_array(assemblies.parse({"mesh": mesh}).unwrap())
        assert whole.joined.array.shape == (8, 8)
        assert {piece.shape for piece in whole.pieces} == {(4, 8 // columns)}


def test_the_callback_is_called_once_for_a_replicated_array() -> None:
    assert len(make_array(ask("callback", "everywhere the same")).pieces) == 1
    assert len(make_array(ask("callback", "rows cut, columns copied")).pieces) == 8


# JAX's error for each mistake in this version; None if it raises none.
OTHER_TYPE = ("ValueError", r"matching dtypes. Got float32, expected int32")
INDIVISIBLE = ("IndivisibleError", r"dimension size is 9")
ANSWERS = {
    "pieces": {
        "shape": ("ValueError", r"Expected shard shape \(4, 2\) .* \(3, 2\)"),
        "missing": ("ValueError", r"Expected 8 per-device arrays .* got 7"),
        "swapped": None,
        "same_device": ("ValueError", r"distinct devices, .* \[0, 1, 2, 4, 4, 5, 6, 7\]"),
        "unmoved": ("ValueError", r"distinct devices, .* \[0, 0, 0, 0, 0, 0, 0, 0\]"),
        "list_order": None,
        "dtype": OTHER_TYPE,
        "global_shape": ("ValueError", r"Expected shard shape \(8, 2\) .* \(4, 2\)"),
        "indivisible": INDIVISIBLE,
    },
    "callback": {
        "shape": ("ValueError", r"Expected shard shape \(4, 2\) .* \(3, 2\)"),
        "missing": ("TypeError", r"NoneType"),
        "swapped": None,
        "dtype": OTHER_TYPE,
        "indivisible": INDIVISIBLE,
    },
    "device_put": {
        "swapped": None,
        "dtype": None,
        "indivisible": INDIVISIBLE,
    },
}


@pytest.mark.parametrize(
    ("way", "mistake"), [(way, mistake) for way, answer in ANSWERS.items() for mistake in answer]
)
def test_errors_of_jax(way: str, mistake: str) -> None:
    assembled = make_array(ask(way, "reference", mistake))
    answer = ANSWERS[way][mistake]
    if answer is None:
        assert assembled.refusal is None and assembled.joined is not None
        return
    kind, text = answer
    assert assembled.refusal.kind == kind
    assert re.search(text, assembled.refusal.text.replace("\n", " "))
    assert assembled.joined is None
    assert "/producers" not in assembled.refusal.text, "no path of this machine"


def test_every_mistake_is_in_the_table() -> None:
    for way in assemblies.WAYS:
        offered = set(assemblies.applicable(ask(way, "reference"))) - {"nothing"}
        assert offered == ANSWERS[way].keys()


@pytest.mark.parametrize(("way", "name", "mistake"), every_case())
def test_faults_are_exactly_the_wrong_shards(way: str, name: str, mistake: str) -> None:
    asked = ask(way, name, mistake)
    assembled = make_array(asked)
    faults = pieces.faults(asked, assembled)
    wrong = pieces.wrong_elements(asked, assembled.joined) if assembled.joined else {}
    verdict = pieces.verdict(asked, assembled)
    if assembled.refusal is not None:
        assert faults, "JAX refused it, and nothing was found to be wrong"
        assert verdict.startswith("JAX refused")
    elif wrong:
        assert set(faults[0].devices) == set(wrong)
        assert "without an error" in verdict
    else:
        assert faults == () or mistake == "dtype"
    if mistake in ("nothing", "list_order") and name != "not divided":
        assert faults == ()
    if mistake in ("shape", "missing", "copies") and name != "everywhere the same":
        assert [fault.devices for fault in faults] == [(3,)]


@pytest.mark.parametrize("name", ["reference", "rows cut, columns copied", "tensor-parallel"])
@pytest.mark.parametrize("way", assemblies.WAYS)
def test_only_swapped_pieces_are_wrong(way: str, name: str) -> None:
    asked = ask(way, name, "swapped", device=1)
    other = assemblies.swap_partner(asked)
    assembled = make_array(asked)
    right = make_array(ask(way, name))
    differing = {
        content.device
        for content, good in zip(assembled.joined.contents, right.joined.contents, strict=True)
        if content.values != good.values
    }
    wrong = pieces.wrong_elements(asked, assembled.joined)
    assert set(wrong) == differing
    if way != "device_put":  # its input is one array, so replicas cannot differ
        assert differing == {1, other}
    assert all(mask.all() for mask in wrong.values())


def test_reading_the_array_hides_different_replicas() -> None:
    asked = ask("pieces", "rows cut, columns copied", "copies", device=2)
    assembled = make_array(asked)
    (fault,) = pieces.faults(asked, assembled)
    assert "Devices 0, 1, 2, 3 should hold the same and do not" in fault.sentence
    devices = np.array(jax.devices()[:8]).reshape(2, 4)
    layout = NamedSharding(Mesh(devices, ("x", "y")), PartitionSpec("x"))
    parts = [
        jax.device_put(np.array(held.values, np.int32).reshape(held.shape), device)
        for held, device in zip(assembled.joined.contents, devices.flat, strict=True)
    ]
    array = jax.make_array_from_single_device_arrays((8, 8), layout, parts)
    assert np.array_equal(np.asarray(array), np.arange(64).reshape(8, 8))


def test_a_reshard_counts_only_missing_elements() -> None:
    asked = ask("pieces", "tensor-parallel")
    assembled = make_array(asked)
    assert assembled.collectives == ("all-to-all",)
    before = {held.device: set(held.values) for held in assembled.joined.contents}
    after = {held.device: set(held.values) for held in assembled.resharded.contents}
    for arrival in pieces.arrivals(asked, assembled):
        # Each element has a unique value, so count the elements.
        kept = len(before[arrival.device] & after[arrival.device]) * 4
        received = {
            other: len(before[other] & after[arrival.device]) * 4
            for other in before
            if other != arrival.device and before[other] & after[arrival.device]
        }
        assert arrival.kept == kept
        assert dict(arrival.received) == received
        assert arrival.kept + arrival.received_bytes == len(after[arrival.device]) * 4


def test_a_reshard_that_only_drops_copies_moves_nothing() -> None:
    fields = {"loading": "reshard", "batch_axes": "x", "target": "x, y"}
    asked = assemblies.parse(fields).unwrap()
    assembled = make_array(asked)
    assert assembled.collectives == ()
    assert {arrival.received for arrival in pieces.arrivals(asked, assembled)} == {()}


def test_a_failed_reshard_keeps_the_loaded_array() -> None:
    fields = {"loading": "reshard", "features": "6", "target": "None, y"}
    asked = assemblies.parse(fields).unwrap()
    assembled = make_array(asked)
    assert assembled.refusal.step == "reshard" and assembled.refusal.kind == "IndivisibleError"
    assert assembled.joined is not None and assembled.resharded is None
    (fault,) = pieces.faults(asked, assembled)
    assert "Dimension 1 of 16×6 of size 6 is not divisible by 4" in fault.sentence


def test_the_job_has_json_input_and_output() -> None:
    asked = ask("pieces", "tensor-parallel", "swapped")
    phases: list[str] = []
    result = assemble({"assembly": asked.to_json()}, lambda phase, **_: phases.append(phase))
    assert typed_json.decode(Assembled, result) == make_array(asked)
    assert phases == ["build"]


def test_an_assembly_makes_a_snapshot() -> None:
    asked = ask("pieces", "tensor-parallel")
    result = pieces.snapshot(asked, make_array(asked))
    assert snapshot.from_json(result.to_json()) == result
    assert [array.path for array in result.arrays] == ["batch", "batch, resharded"]
    assert result.findings == ()
    for mistake, code in (("shape", "refused-by-jax"), ("swapped", "wrong-numbers")):
        broken = ask("pieces", "reference", mistake)
        (finding,) = pieces.snapshot(broken, make_array(broken)).findings
        assert (finding.level, finding.code) == ("error", code)


# --- The exported script --------------------------------------------------------------------------


@pytest.mark.parametrize(("way", "name", "mistake"), every_case())
def test_the_script_does_what_the_job_did(
    monkeypatch: pytest.MonkeyPatch, way: str, name: str, mistake: str
) -> None:
    asked = ask(way, name, mistake)
    assembled = make_array(asked)
    monkeypatch.setattr(os, "environ", dict(os.environ))  # it sets environment variables
    printed = io.StringIO()
    code = compile(script(asked), "script", "exec")
    if assembled.refusal is not None:
        with pytest.raises(Exception) as caught, contextlib.redirect_stdout(printed):
            exec(code, {})
        assert type(caught.value).__name__ == assembled.refusal.kind
        assert without_place(str(caught.value)) == without_place(assembled.refusal.text)
        return
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    assert_prints(printed.getvalue(), assembled)


@pytest.mark.parametrize(
    ("way", "name", "mistake"),
    [
        ("pieces", "reference", "nothing"),
        ("pieces", "three axes", "swapped"),
        ("callback", "tensor-parallel", "nothing"),
        ("device_put", "rows cut, columns copied", "nothing"),
    ],
)
def test_the_script_runs_without_the_project(tmp_path, way: str, name: str, mistake: str) -> None:
    asked = ask(way, name, mistake)
    done = run_alone(tmp_path, asked)
    assert done.returncode == 0, done.stderr
    assert_prints(done.stdout, make_array(asked))


def test_the_script_with_a_mistake_ends_with_jaxs_error(tmp_path) -> None:
    asked = ask("pieces", "reference", "missing")
    done = run_alone(tmp_path, asked)
    assert done.returncode == 1 and done.stdout == ""
    assert make_array(asked).refusal.text in done.stderr


def run_alone(folder, asked: Assembly) -> subprocess.CompletedProcess[str]:
    """Run the script in a process without this project."""
    path = folder / "assembled.py"
    path.write_text(script(asked), encoding="utf-8")
    kept = {key: value for key, value in os.environ.items() if key in ("PATH", "HOME", "TMPDIR")}
    return subprocess.run([sys.executable, str(path)], cwd=folder, env=kept, capture_output=True, text=True)


def assert_prints(printed: str, assembled: Assembled) -> None:
    stage = assembled.resharded or assembled.joined
    first, *lines = printed.splitlines()
    assert first == stage.sharding
    shown = {}
    for line in lines:
        match = re.fullmatch(r"device (\d+) holds (\(.*\)) (\[.*\])", line)
        shown[int(match[1])] = np.array(eval(match[3]))
    assert shown.keys() == {held.device for held in stage.contents}
    for held in stage.contents:
        assert shown[held.device].shape == held.shape
        assert shown[held.device].ravel().tolist() == list(held.values)


def without_place(text: str) -> str:
    """Return an error without the source line that newer versions add."""
    return re.sub(r"\s*This error occurs at source:.*", "", text, flags=re.DOTALL)
