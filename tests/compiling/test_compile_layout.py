"""Tests of layouts compiled for TPU and GPU targets in worker processes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from inspector import layout as layouts
from inspector.jobs.engine import Environment, Job, Pool
from inspector.layout.plan import plan
from inspector.machines import out_of_memory, slices, targets
from inspector.machines.hardware import chip_of_device
from inspector.records import snapshot
from inspector.records.collectives import OPS
from inspector.records.snapshot import Snapshot
from inspector.sharding.traffic import traffic
from inspector.tracing.model.abstract import abstract_state

pytestmark = pytest.mark.close_to_jax

SMALL = {"batch": "64", "layers": "2", "depth": "256", "steps": "1"}
PATIENCE = 300.0  # seconds; the slowest compile takes about ten

# A target, a mesh, and other fields of the layout.
CASES: dict[str, tuple[str, str, dict[str, str]]] = {
    "v3": ("tpu:v3:2x2", "2x4", {}),
    "v4": ("tpu:v4:2x2x1", "2x2", {"model": "mlp"}),
    "v5e": ("tpu:v5e:2x4", "2x4", {"donate": "true"}),
    "v5p, a loop with rings": (
        "tpu:v5p:2x2x2", "4x2",
        {"scan": "true", "layers": "4", "depth": "4096", "batch": "8192", "dtype": "bfloat16",
         "rules": "batch=data,embed=data,hidden=model"},
    ),
    "v6e": ("tpu:v6e:2x2", "4", {"axes": "fsdp", "rules": "batch=fsdp,embed=fsdp"}),
    "tpu7x": ("tpu:tpu7x:2x2x1", "2x4", {}),
    "a100": ("gpu:a100:8", "2x4", {}),
    "h100": ("gpu:h100:8", "2x4", {"scan": "true"}),
    "h200": ("gpu:h200:4", "2x2", {}),
    "b200, two nodes": ("gpu:b200:16", "2x8", {}),
}  # fmt: skip


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(workers=2, jobs="tests.compiling.absent") as pool:
        yield pool


def start(pool: Pool, job: str, target: str, **payload: Any) -> Job:
    machine = targets.parse(target)
    if lacking := targets.missing_compiler(machine):
        pytest.skip(lacking)
    environment = Environment(1, targets.environment(machine))
    return pool.submit(job, {"target": target, **payload}, environment, PATIENCE)


def result(job: Job) -> dict[str, Any]:
    job.wait()
    assert job.state == "done", job.error
    return job.result


def layout_of(fields: dict[str, str]) -> layouts.Layout:
    return layouts.parse(SMALL | fields).unwrap()


def look(pool: Pool, target: str, fields: dict[str, str], **payload: Any) -> tuple[Snapshot, dict[str, Any]]:
    answer = result(start(pool, "look", target, layout=layout_of(fields).to_json(), **payload))
    return snapshot.from_json(answer["snapshot"]), answer["seen"]


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, pool: Pool) -> tuple[Snapshot, dict[str, Any], Any]:
    target, mesh, fields = CASES[request.param]
    layout = layout_of({"mesh": mesh} | fields)
    return (*look(pool, target, {"mesh": mesh} | fields), layout)


@pytest.mark.nightly_but_first
def test_programs_have_the_figures_of_the_compiler(case: Any) -> None:
    found, seen, _ = case
    target = targets.parse(found.source.target)
    assert found.source.kind == target.kind
    assert targets.chip_of(found) == chip_of_device(found.mesh.device_kind) == target.chip
    assert [program.name for program in found.programs] == ["init", "train_step", "apply"]
    for program in found.programs:
        own, memory = seen[program.name], program.memory
        assert {key: getattr(memory, key) for key in own if key != "opcodes"} == {
            key: own[key] for key in own if key != "opcodes"
        }
        assert memory.capacity and memory.peak
        assert memory.capacity <= target.chip.hbm_bytes_per_device * 1.08  # GB sold as GiB
        assert program.seconds.lower > 0 and program.seconds.compile > 0
        assert program.seconds.steps == () and program.seconds.first is None
        # The compiler kept every requested sharding.
        assert all(sharding.same for sharding in program.shardings if sharding.same is not None)
    assert out_of_memory.findings(found) == ()


@pytest.mark.nightly_but_first
def test_the_peak_follows_from_the_schedule(case: Any) -> None:
    """The peak of the live values is the compiler's, on every chip and for every program."""
    found, _, _ = case
    for program in found.programs:
        use, peak = program.memory_use, program.memory.peak
        assert use is not None
        # The compiler for TPUs takes VMEM instead of HBM if more of it is in use. Values have 512 bytes.
        tolerance = 0.08 * peak + 64_000
        on_chip = use.on_chip or 0
        assert use.peak_bytes <= peak + tolerance
        assert use.peak_bytes + on_chip >= peak - tolerance
        if on_chip < 0.01 * peak:
            assert use.peak_bytes == pytest.approx(peak, abs=tolerance)
        assert sum(value.bytes for value in use.values) >= 0.95 * use.peak_bytes


@pytest.mark.nightly_but_first
def test_every_collective_of_the_module_is_counted(case: Any) -> None:
    found, seen, _ = case
    for program in found.programs:
        counted = Counter(one.op for one in program.collectives)
        own = seen[program.name]["opcodes"]
        assert counted == Counter({op: own[op] for op in OPS if op in own})
        for collective in program.collectives:
            assert collective.executions is not None and collective.payload_bytes is not None
            assert collective.mesh_axes is not None, collective.name
    assert found.program("train_step").collectives


@pytest.mark.nightly_but_first
def test_a_ring_in_a_loop_runs_once_per_layer(case: Any) -> None:
    found, seen, layout = case
    step = found.program("train_step")
    rings = [collective for collective in step.collectives if collective.op == "collective-permute"]
    assert len(rings) == seen["train_step"]["opcodes"].get("collective-permute", 0)
    # The compiler makes a ring only for large matrices.
    assert bool(rings) == (layout.sizes["depth"] >= 4096)
    for ring in rings:
        assert ring.asynchronous and ring.executions % layout.sizes["layers"] == 0
        assert ring.source_target_pairs and ring.wire_bytes_per_device == ring.payload_bytes


@pytest.mark.nightly_but_first
def test_arrays_have_their_planned_shardings_and_bytes(case: Any) -> None:
    found, _, layout = case
    planned = plan(layout, abstract_state(layout))
    placed = {array.path: array for array in found.arrays}
    for array in planned.arrays:
        assert placed[array.path] == array
    held = sum(a.bytes_per_device for a in planned.arrays if a.group != "output")
    arguments = found.program("train_step").memory.arguments
    # Each array is padded to tiles of at most 8 × 128 elements of four bytes.
    assert held <= arguments <= held + 4096 * len(planned.arrays)


@pytest.mark.nightly_but_first
def test_the_mesh_has_the_devices_of_the_target(case: Any) -> None:
    found, _, layout = case
    target = targets.parse(found.source.target)
    assert found.mesh.shape == layout.mesh_shape and found.mesh.axis_names == layout.axis_names
    assert len(set(found.mesh.devices)) == target.devices
    assert len(set(found.mesh.processes)) == target.hosts == found.source.processes
    if target.slice is None:
        assert found.mesh.coordinates is None
        return
    cores = zip(found.mesh.coordinates, found.mesh.cores, strict=True)
    assert len(set(cores)) == target.devices
    assert found.mesh.topology == target.slice.shape


@pytest.mark.nightly
def test_collectives_in_a_loop_scale_with_the_layers(pool: Pool) -> None:
    def executed(layers: int) -> Counter[Any]:
        fields = {
            "mesh": "2x2", "scan": "true", "depth": "512", "batch": "1024", "layers": str(layers),
            "rules": "batch=data,embed=data,hidden=model",
        }  # fmt: skip
        snapshot, _ = look(pool, "tpu:v5p:2x2x1", fields)
        total: Counter[Any] = Counter()
        for row in traffic(snapshot.program("train_step").collectives):
            total[row.op, row.mesh_axes] += row.payload_bytes
        return total

    four, eight, twelve = (executed(layers) for layers in (4, 8, 12))
    assert four and twelve - eight == eight - four
    assert sum((eight - four).values()) > 0


# --- Every machine --------------------------------------------------------------------------------


@pytest.mark.first_jax_is_enough
def test_slices_equal_those_of_the_compiler(pool: Pool) -> None:
    chosen = [
        one
        for generation in slices.GENERATIONS
        for one in (
            *slices.named_slices(generation)[:9],
            *(s for s in slices.slices(generation) if s.chips == s.chip.pod_chips),
        )
        if max(one.shape) <= 32
    ]
    texts = sorted({f"tpu:{one.generation}:{one.topology}" for one in chosen})
    assert "tpu:v5p:16x20x28" in texts and "tpu:tpu7x:16x24x24" in texts
    described = result(start(pool, "describe", texts[0], targets=texts))
    for text in texts:
        one, own = targets.parse(text).slice, described[text]
        assert (own["devices"], own["chips"], own["hosts"]) == (one.devices, one.chips, one.hosts)
        assert own["shape"] == [*one.shape, 1][:3]
        assert tuple(own["host_shape"]) == one.host_shape


def test_gpus_equal_those_of_the_compiler(pool: Pool) -> None:
    texts = [f"gpu:{chip}:{count}" for chip in targets.GPU_CHIPS for count in (1, 3, 8, 4096)]
    described = result(start(pool, "describe", texts[0], targets=texts))
    for text in texts:
        target = targets.parse(text)
        assert described[text]["devices"] == target.devices
        assert described[text]["hosts"] == target.hosts
        assert target.chip_name.upper() in described[text]["kind"]


@pytest.mark.nightly
def test_four_thousand_chips(pool: Pool) -> None:
    fields = {"batch": "4096", "axes": "data,model", "mesh": "1x1", "depth": "1024"}
    snapshot, seen = look(pool, "tpu:v5p:16x16x16", fields, mesh=[256, 16], order="torus")
    step = snapshot.program("train_step")
    assert len(snapshot.mesh.devices) == 4096 == len(set(snapshot.mesh.devices))
    assert Counter(collective.op for collective in step.collectives) == Counter(
        {op: seen["train_step"]["opcodes"][op] for op in OPS if op in seen["train_step"]["opcodes"]}
    )
    assert {collective.mesh_axes for collective in step.collectives} == {("data",), ("model",)}
    assert all(collective.groups * collective.group_size == 4096 for collective in step.collectives)


# --- Device order ---------------------------------------------------------------------------------


def test_a_mesh_axis_follows_an_axis_of_the_torus(pool: Pool) -> None:
    made = {
        order: result(start(pool, "compiled_alone", "tpu:v5p:4x4x4", mesh=[16, 4], order=order))
        for order in ("row-major", "torus")
    }
    places = {order: np.array(one["mesh"]["coordinates"]).reshape(16, 4, 3) for order, one in made.items()}
    assert sorted(made["torus"]["devices"]) == sorted(made["row-major"]["devices"])
    assert made["torus"]["devices"] != made["row-major"]["devices"]
    # Number of coordinates that differ in a row of four: one along an axis of the torus.
    differing = {
        order: {int((place != place[0]).any(axis=0).sum()) for place in grid}
        for order, grid in places.items()
    }
    assert differing == {"torus": {1}, "row-major": {2}}  # a host has 2 × 2 chips
    assert not made["torus"]["mesh"]["split"]
    # All devices run the same program, so its size does not depend on the order.
    assert made["torus"]["opcodes"]["all-reduce"] == made["row-major"]["opcodes"]["all-reduce"]
    assert made["torus"]["arguments"] == made["row-major"]["arguments"]


def test_a_split_axis_of_the_torus_is_recorded(pool: Pool) -> None:
    made = result(start(pool, "compiled_alone", "tpu:v5p:4x4x4", mesh=[2, 32], order="torus"))
    assert made["mesh"]["split"] and len(set(made["devices"])) == 64


# --- Failed compiles -----------------------------------------------------------------------------------


@pytest.mark.nightly
def test_a_program_that_does_not_fit_has_figures(pool: Pool) -> None:
    result, seen = look(pool, "tpu:v5e:4x4", {"mesh": "4x4", "depth": "32768", "layers": "4"})
    short = {one.program: one for one in out_of_memory.findings(result)}
    assert set(short) == {"init", "train_step"} == {name for name in seen if seen[name] is None}
    for name, finding in short.items():
        memory = result.program(name).memory
        assert (memory.peak, memory.capacity) == (finding.needed, finding.available)
        assert memory.capacity == 15.75 * 2**30 and memory.arguments is None
        assert "Ran out of memory" in memory.compiler
        assert result.program(name).collectives is None
        assert result.program(name).seconds.compile > 0
    # Parameters and two moments of Adam, as inputs and as outputs.
    state = sum(a.bytes_per_device for a in result.arrays if a.group in ("params", "opt_state"))
    assert short["train_step"].needed == pytest.approx(2 * state, rel=0.001)
    assert result.program("apply").memory.arguments > 0  # the smaller program compiles
    assert snapshot.from_json(result.to_json()) == result


@pytest.mark.nightly
def test_gpu_program_that_does_not_fit_has_a_finding(pool: Pool) -> None:
    snapshot, seen = look(pool, "gpu:a100:8", {"mesh": "2x4", "depth": "65536", "layers": "2"})
    (finding,) = out_of_memory.findings(snapshot)
    own = seen["train_step"]
    assert finding.program == "train_step"
    assert finding.needed == own["arguments"] + own["outputs"] + own["temporaries"]
    assert finding.available == 80_000_000_000


@pytest.mark.parametrize(
    ("target", "payload", "said"),
    [
        ("tpu:v5p:2x2x1", {"mesh": [2, 4]}, "mesh 2x4 has 8 devices, but tpu:v5p:2x2x1 has 4"),
        ("tpu:v5p:2x2x1", {"order": "best"}, "device_order is 'best', but must be one of"),
        ("tpu:v5p:2x2x1", {"fields": {"batch": "3"}}, "batch"),
        (
            "tpu:v5p:2x2x1",
            # An option that only other compilers know.
            {"fields": {"compiler_options": "xla_tpu_impure_use_lmr_on_gxc=true"}},
            "compiler_options is 'xla_tpu_impure_use_lmr_on_gxc=true', but must have options",
        ),
    ],
)
def test_invalid_requests_are_refused(pool: Pool, target: str, payload: dict[str, Any], said: str) -> None:
    fields = {"mesh": "2x2"} | payload.pop("fields", {})
    job = start(pool, "look", target, layout=layout_of(fields).to_json(), **payload)
    job.wait()
    assert (job.state, job.error[: len(said)]) == ("failed", said)


@pytest.mark.first_jax_is_enough
def test_the_job_returns_a_snapshot(pool: Pool) -> None:
    layout = layout_of({"mesh": "2x2", "depth": "64"})
    options = {"xla_tpu_scoped_vmem_limit_kib": "65536", "xla_enable_async_all_gather": "true"}
    plain = layout.to_json() | {"target": "tpu:v6e:2x2", "device_order": "torus"}
    plain |= {"compiler_options": options}
    job = start(pool, "compile", "tpu:v6e:2x2", layout=plain)
    found = snapshot.from_json(result(job))
    assert (found.source.kind, found.layout["target"]) == ("tpu", "tpu:v6e:2x2")
    assert found.mesh.device_order == "torus"
    assert found.layout["compiler_options"] == options
    assert "libtpu" in found.source.versions
    phases = [name for name, _ in job.status().phases]
    assert phases[:5] == ["start", "topology", "build", "lower", "compile"]


@pytest.mark.nightly
def test_two_concurrent_compiles_leave_no_files(pool: Pool) -> None:
    before = _left()
    plain = layout_of({"mesh": "2x2", "depth": "64"}).to_json()
    jobs = [
        start(pool, "compile", target, layout=plain | {"target": target})
        for target in ("tpu:v5e:2x2", "tpu:v6e:2x2")
    ]
    for job in jobs:
        assert result(job)["programs"]
    assert _left() == before


def _left() -> set[str]:
    """Return the files that libtpu writes to the temporary folder by default."""
    logs = "/tmp/tpu_logs"
    return set(os.listdir(logs)) if os.path.isdir(logs) else set()


@pytest.mark.nightly
def test_flash_attention_on_a_tpu_keeps_no_scores(pool: Pool) -> None:
    fields = {
        **{"model": "transformer", "attention": "flash", "mesh": "4", "axes": "data"},
        **{
            "batch": "4",
            "seq": "2048",
            "layers": "1",
            "embed": "128",
            "mlp": "128",
            "vocab": "128",
        },
        **{"heads": "1", "kv_heads": "1", "head_dim": "128", "dtype": "bfloat16"},
    }
    layout = layouts.parse(fields).unwrap()
    answer = result(start(pool, "look", "tpu:v5e:2x2", layout=layout.to_json()))
    program = snapshot.from_json(answer["snapshot"]).program("train_step")
    scores = 2048 * 2048 * 4  # of one head and one sequence, in float32
    assert program.memory.temporaries < scores / 2


def test_a_model_can_compute_constants_while_it_is_traced(pool: Pool) -> None:
    """A device of the target would have to compute them if the mesh of the trace had devices."""
    compiled = result(start(pool, "with_constant", "tpu:v5e:2x2"))
    assert compiled["batch/x"] == [["data"], None]
    assert compiled["w"] == [None, None]
