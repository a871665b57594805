"""Memory by part, against the compiler's memory analysis and against counts per device."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import inspector
from inspector import hlo
from inspector import layout as layouts
from inspector.answers import memory as memory_section
from inspector.answers.section import Folded, Table
from inspector.assessment import assess
from inspector.compiled.memory_use import memory_use
from inspector.compiling.compiled_program import CompiledProgram
from inspector.compiling.run_layout import run_layout
from inspector.hlo.analysis import Analysis
from inspector.layout.plan import plan
from inspector.machines import hardware, out_of_memory
from inspector.prediction import memory
from inspector.prediction.memory import Breakdown, GroupBytes
from inspector.records.snapshot import Array, Memory, Program, ProgramArray, Shard, Snapshot, Source
from inspector.records.statistics import sum_known
from inspector.sharding.placement import shards
from inspector.tracing import leaves
from inspector.tracing.model.abstract import abstract_state
from tests.compare import glances
from tests.figures import samples

pytestmark = pytest.mark.close_to_jax

SMALL = {"batch": "8", "layers": "2", "depth": "64", "steps": "1"}

LAYOUTS = {
    "default": {},
    "device axes": {"model": "mlp"},
    "FSDP": {"mesh": "8", "axes": "fsdp", "rules": "batch=fsdp,embed=fsdp"},
    "momentum in bfloat16": {"optimizer": "momentum", "dtype": "bfloat16"},
    "three axes, odd sizes": {
        "mesh": "1x3x2", "axes": "a,b,c", "rules": "batch=a,hidden=c+b", "batch": "5", "depth": "42",
    },
    "scan, donated": {"scan": "true", "donate": "true"},
}  # fmt: skip

V5E = hardware.chip("v5e")


def run(monkeypatch: pytest.MonkeyPatch, fields: dict[str, str]) -> tuple[Snapshot, dict[str, Any]]:
    """Run a layout; return its Snapshot and the compiler's memory analysis of each program."""
    analyses: dict[str, Any] = {}
    compile_it = CompiledProgram.compile

    def compile_and_ask(self: CompiledProgram, *arguments: Any, **named: Any) -> None:
        compile_it(self, *arguments, **named)
        analyses[self.name] = self._executable.memory_analysis()

    monkeypatch.setattr(CompiledProgram, "compile", compile_and_ask)
    snapshot = run_layout(layouts.parse(SMALL | fields).unwrap(), lambda *_, **__: None)
    return snapshot, analyses


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("name", LAYOUTS)
def test_breakdown_of_a_run(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    snapshot, analyses = run(monkeypatch, LAYOUTS[name])
    programs = {one.program: one for one in memory.breakdowns(snapshot)}
    assert programs.keys() == analyses.keys() == {"init", "train_step", "apply"}
    for program, analysis in analyses.items():
        breakdown = programs[program]
        assert sum_known(p.bytes for p in breakdown.arguments) == analysis.argument_size_in_bytes
        assert sum_known(p.bytes for p in breakdown.outputs) == analysis.output_size_in_bytes
        assert breakdown.temporaries == analysis.temp_size_in_bytes
        assert breakdown.aliased == analysis.alias_size_in_bytes
        assert breakdown.code == analysis.generated_code_size_in_bytes
        # XLA's own peak for emulated devices leaves out temporaries. Tables of tuples have no shape, and
        # alignment adds up to 64 bytes a value.
        assert breakdown.total is not None and breakdown.peak is not None
        assert breakdown.total - breakdown.temporaries - 500 <= breakdown.peak <= breakdown.total + 500
        assert sum(value.bytes for value in breakdown.use.values) >= 0.95 * breakdown.peak
        assert breakdown.total == (
            analysis.argument_size_in_bytes
            + analysis.output_size_in_bytes
            + analysis.temp_size_in_bytes
            - analysis.alias_size_in_bytes
        )
    for program in ("train_step", "apply"):
        assert memory.UNEXPLAINED not in [part.name for part in programs[program].arguments]
    key = jax.eval_shape(lambda: jax.random.key(0))
    assert programs["init"].arguments == (GroupBytes(None, 1, key.dtype.itemsize),)
    step = {part.group: part.bytes for part in programs["train_step"].arguments}
    for group in ("params", "opt_state", "other"):
        arrays = [array for array in snapshot.arrays if array.group == group]
        assert step.get(group, 0) == sum(array.bytes_per_device for array in arrays)
    held = {one.owner: one.bytes for one in snapshot.live if one.device == snapshot.mesh.devices[0]}
    assert step["params"] == held["params"]
    assert step.get("opt_state", 0) + step["other"] == held["optimizer state and step"]
    assert step["batch"] == held["batch"]


@pytest.mark.nightly
@pytest.mark.parametrize("fields", [{"scan": "true"}, {"optimizer": "sgd"}])
def test_donatable_bytes_are_those_that_donation_aliases(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, str]
) -> None:
    without, _ = run(monkeypatch, fields)
    donated, analyses = run(monkeypatch, fields | {"donate": "true"})
    (before,) = [breakdown for breakdown in memory.breakdowns(without) if breakdown.program == "train_step"]
    (after,) = [breakdown for breakdown in memory.breakdowns(donated) if breakdown.program == "train_step"]
    assert before.aliased == 0
    assert before.not_donated == analyses["train_step"].alias_size_in_bytes > 0
    assert after.not_donated == 0


SIZES = st.integers(0, 40)


# Each example compiles a program.
@pytest.mark.nightly
@settings(max_examples=12)
@given(
    dtype=st.sampled_from(["float32", "bfloat16", "int8", "bool"]),
    shapes=st.lists(st.lists(SIZES, max_size=3), min_size=1, max_size=3),
    split=st.booleans(),
)
def test_arguments_of_any_size(dtype: str, shapes: list[list[int]], split: bool) -> None:
    """The compiler adds no padding to odd, empty and scalar arrays."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("x",))
    values, arrays, used = [], [], []
    for number, shape in enumerate(shapes):
        axes = ["x" if split and number == 0 and i == 0 and n % 4 == 0 else None for i, n in enumerate(shape)]
        sharding = NamedSharding(mesh, PartitionSpec(*axes))
        value = jax.ShapeDtypeStruct(tuple(shape), jnp.dtype(dtype), sharding=sharding)
        itemsize = value.dtype.itemsize
        spec = tuple(None if axis is None else (axis,) for axis in axes)
        values.append(value)
        arrays.append(
            Array(
                f"batch/{number}", "batch", tuple(shape), dtype, spec=spec,
                bytes=int(np.prod(shape)) * itemsize,
                bytes_per_device=int(np.prod(sharding.shard_shape(tuple(shape)))) * itemsize,
            )
        )  # fmt: skip
        used.append(ProgramArray("input", f"batch/{number}", spec, spec, True))

    def negate(*inputs: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(jnp.logical_not(array) for array in inputs)

    executable = jax.jit(negate, keep_unused=True).lower(*values).compile()
    snapshot = Snapshot(Source("cpu", "cpu", "now"), None, samples.mesh(x=4), tuple(arrays))
    program = Program("p", memory=leaves.memory_of(executable), shardings=tuple(used))
    breakdown = memory.breakdown(snapshot, program)
    assert breakdown.arguments == (GroupBytes("batch", len(shapes), program.memory.arguments),)


def with_memory(snapshot: Snapshot, **changed: Any) -> Snapshot:
    figures = {
        "arguments": 100,
        "outputs": 50,
        "aliased": 10,
        "temporaries": 7,
        "code": 3,
    } | changed
    return dataclasses.replace(snapshot, programs=(Program("p", memory=Memory(**figures)),))


def test_program_without_memory() -> None:
    assert memory.breakdowns(samples.snapshot()) == ()


def test_unlisted_arguments_are_unexplained() -> None:
    (breakdown,) = memory.breakdowns(with_memory(samples.snapshot()))
    assert breakdown.arguments == (GroupBytes(None, 0, 100),)
    assert breakdown.total == 100 + 50 + 7 - 10
    assert breakdown.donatable is None and breakdown.not_donated is None


@pytest.mark.parametrize("unknown", ["arguments", "outputs", "aliased", "temporaries"])
def test_unknown_part_makes_the_total_unknown(unknown: str) -> None:
    snapshot = with_memory(samples.snapshot(), **{unknown: None})
    (breakdown,) = memory.breakdowns(snapshot)
    assert breakdown.total is None
    fit = memory.fit(snapshot, V5E)
    assert fit.fits is None and fit.need is not None and fit.need.at_least


def test_code_counts_on_tpu() -> None:
    snapshot = with_memory(samples.snapshot())
    on_tpu = dataclasses.replace(snapshot, source=Source("tpu", "tpu:v5e:2x4", "now"))
    assert memory.breakdowns(on_tpu)[0].total == memory.breakdowns(snapshot)[0].total + 3
    without = with_memory(on_tpu, code=None)
    assert memory.breakdowns(without)[0].total is None


def test_program_can_shard_an_array_differently() -> None:
    mesh = samples.mesh(x=4)
    array = samples.array("params/w", (8, 8), (None, None), mesh)
    program = Program(
        "p",
        memory=Memory(arguments=100, outputs=0, aliased=0, temporaries=0),
        shardings=(ProgramArray("input", "params/w", None, (("x",), None), None),),
    )
    snapshot = dataclasses.replace(samples.snapshot(mesh, (array,)), programs=(program,))
    assert memory.breakdown(snapshot, program).arguments == (
        GroupBytes("params", 1, 64),
        GroupBytes(None, 0, 36),
    )


def test_an_argument_in_another_sharding_than_the_arrays_is_of_any_group() -> None:
    """The first compile of a step gets whole parameters, of which only one keeps its sharding afterwards."""
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    shapes = [jax.ShapeDtypeStruct((8, 8), "float32", sharding=device)] * 2
    analysis = jax.jit(lambda a, b: (a * 2, b)).lower(*shapes).compile().memory_analysis()
    mesh = samples.mesh(x=4)
    arrays = (
        samples.array("params/a", (8, 8), (None, None), mesh),
        samples.array("params/b", (8, 8), ("x", None), mesh),
    )
    program = Program(
        "p",
        memory=Memory(arguments=analysis.argument_size_in_bytes, outputs=0, aliased=0, temporaries=0),
        shardings=tuple(
            ProgramArray("input", path, None, (None, None), None) for path in ("params/a", "p/input/b")
        ),
    )
    snapshot = dataclasses.replace(samples.snapshot(mesh, arrays), programs=(program,))
    analysed = memory.breakdown(snapshot, program)
    assert analysed is not None and analysed.arguments == (
        GroupBytes("params", 1, 256),
        GroupBytes(None, 1, 256),
    )


def test_a_group_is_unknown_only_if_an_argument_matches_no_array() -> None:
    """Beside a program that takes a batch, one without any has 0 B; an unmatched argument can be one."""
    mesh = samples.mesh(x=4)
    snapshot = samples.snapshot(mesh, (samples.array("params/w", (8, 8), (None, None), mesh),))
    batch = samples.array("batch/x", (8, 8), (None, None), mesh)
    snapshot = dataclasses.replace(snapshot, arrays=(*snapshot.arrays, batch))
    taken = {"both": ("params/w", "batch/x"), "one": ("params/w",), "other": ("params/w", "other/input/x")}
    programs = tuple(
        Program(
            name,
            memory=Memory(arguments=256 * len(paths), outputs=0, aliased=0, temporaries=0),
            shardings=tuple(ProgramArray("input", path, None, (None, None), None) for path in paths),
        )
        for name, paths in taken.items()
    )
    snapshot = dataclasses.replace(snapshot, programs=programs)
    numbers = memory_section.programs(snapshot, None)[-1]
    assert isinstance(numbers, Folded)
    table = numbers.blocks[-1]
    assert isinstance(table, Table)
    (row,) = (cells for cells in table.rows if cells[0] == "Arguments: batch")
    assert row[1:] == (256, 0, None)


@pytest.mark.parametrize("got", [(("y",), None), (("x",),), ((), ("x",)), (("x",), None)])
def test_invalid_sharding_leaves_the_argument_unexplained(got: Any) -> None:
    mesh = samples.mesh(x=4)
    array = samples.array("params/w", (7, 7), (None, None), mesh)
    program = Program(
        "p",
        memory=Memory(arguments=100, outputs=0, aliased=0, temporaries=0),
        shardings=(ProgramArray("input", "params/w", None, got, None),),
    )
    snapshot = dataclasses.replace(samples.snapshot(mesh, (array,)), programs=(program,))
    assert memory.breakdown(snapshot, program).arguments == (GroupBytes(None, 0, 100),)


def test_unused_input_is_not_an_argument() -> None:
    snapshot = samples.snapshot()
    path = snapshot.arrays[1].path
    program = Program(
        "p",
        memory=Memory(arguments=0, outputs=0, aliased=0, temporaries=0),
        shardings=(ProgramArray("input", path, None, None, None, used=False),),
    )
    assert memory.breakdown(snapshot, program).arguments == ()


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    data=st.data(),
)
def test_bytes_on_all_devices_are_those_of_all_shards(sizes: list[int], data: st.DataObject) -> None:
    names = [f"a{i}" for i in range(len(sizes))]
    mesh = samples.mesh(**dict(zip(names, sizes, strict=True)))
    split = data.draw(
        st.lists(st.sampled_from([None, *names]), max_size=3, unique_by=lambda x: x or object())
    )
    spec = tuple(None if name is None else (name,) for name in split)
    shape = tuple(mesh.ways(axes) * data.draw(st.integers(1, 3)) for axes in spec)
    array = samples.array("params/w", shape, spec, mesh)
    # Devices that hold each element.
    held = np.zeros(shape, dtype=int)
    for shard in shards(array, mesh):
        held[tuple(slice(*bounds) for bounds in shard.index)] += 1
    assert memory.bytes_everywhere(array, mesh) == held.sum() * 4


def test_uneven_shards() -> None:
    on = samples.mesh(x=4)
    assert memory.bytes_everywhere(samples.uneven(on), on) == 240


def test_unknown_bytes() -> None:
    array = Array("params/w", "params", (4,), "float32")
    snapshot = samples.snapshot(samples.mesh(x=2), (array,))
    assert memory.bytes_everywhere(array, snapshot.mesh) is None
    held = dataclasses.replace(array, shape=(0,), bytes=0, shards=(Shard(0, ((0, 0),), 0),))
    assert memory.bytes_everywhere(held, snapshot.mesh) == 0


def needing(total: int, kind: str = "tpu") -> Snapshot:
    snapshot = with_memory(samples.snapshot(), arguments=total, outputs=0, aliased=0, temporaries=0, code=0)
    return dataclasses.replace(snapshot, source=Source(kind, kind, "now"))


@pytest.mark.parametrize("name", hardware.CHIPS)
def test_capacity_is_exact(name: str) -> None:
    chip = hardware.chip(name)
    capacity = memory.capacity_of(chip)
    assert 0.9 < capacity * chip.devices / chip.hbm_bytes < 1.1
    assert memory.fit(needing(capacity, chip.kind), chip).fits is True
    assert memory.fit(needing(capacity + 1, chip.kind), chip).fits is False


@pytest.mark.parametrize(
    ("rejected", "fits", "basis"), [(False, True, "compiler"), (True, False, "compiler")]
)
def test_the_compiler_of_the_chip_decides(rejected: bool, fits: bool, basis: str) -> None:
    compiled = needing(memory.capacity_of(V5E) + 100)
    compiled = dataclasses.replace(compiled, source=Source("tpu", "tpu:v5e:2x4", "now"))
    if rejected:
        short = out_of_memory.Shortage(20 * 2**30, 15 * 2**30, "HBM", "")
        finding = out_of_memory.finding("train_step", "tpu:v5e:2x4", short)
        compiled = dataclasses.replace(compiled, findings=(finding,))
    fit = memory.fit(compiled, V5E)
    assert (fit.fits, fit.basis, fit.message is not None) == (fits, basis, rejected)
    assert fit.need is not None
    # What the compiler needed and had, which can differ from the memory that the table has.
    assert fit.need.peak_bytes == (20 * 2**30 if rejected else memory.capacity_of(V5E) + 100)
    assert fit.need.capacity_bytes == (15 * 2**30 if rejected else memory.capacity_of(V5E))
    assert memory.fit(compiled, hardware.chip("v6e")).basis == "parts"


def test_fit_of_compiled_programs() -> None:
    fit = memory.fit(needing(18 * 2**30), V5E)
    assert fit.need is not None
    assert (fit.fits, fit.basis, fit.need.program) == (False, "parts", "p")


@pytest.mark.first_jax_is_enough
def test_fit_of_a_plan_is_a_lower_bound() -> None:
    layout = layouts.parse(SMALL).unwrap()
    planned = plan(layout, abstract_state(layout))
    fit = memory.fit(planned, V5E)
    snapshot = run_layout(layout, lambda *_, **__: None)
    assert fit.fits is None and fit.need is not None and fit.need.at_least
    assert fit.need.peak_bytes == snapshot.program("train_step").memory.arguments
    too_large = dataclasses.replace(
        planned,
        arrays=tuple(dataclasses.replace(array, bytes_per_device=10**12) for array in planned.arrays),
    )
    fit = memory.fit(too_large, V5E)
    assert fit.fits is False and fit.need is not None and fit.need.at_least


def test_fit_without_arrays_is_unknown() -> None:
    snapshot = samples.snapshot(arrays=())
    fit = memory.fit(snapshot, V5E)
    assert fit.fits is None and fit.need is None and fit.basis == "unknown"


def test_aliased_outputs_count_once() -> None:
    breakdown = Breakdown(
        "p", (GroupBytes("params", 1, 10), GroupBytes("opt_state", 1, 20)), (GroupBytes("params", 1, 30),),
        30, 5, 0, None, False, 30,
    )  # fmt: skip
    assert breakdown.total == 35 and breakdown.not_donated == 0


def test_arguments_in_host_memory_are_no_part_of_device_memory() -> None:
    """A text of a program for CPUs has the memory space, 5, only in its header."""
    text = (
        "HloModule m, is_scheduled=true, "
        "entry_computation_layout={(f32[8]{0}, f32[64]{0:S(5)})->(f32[8]{0}, f32[64]{0:S(5)})}\n\n"
        "ENTRY %main (a: f32[8], b: f32[64]) -> (f32[8], f32[64]) {\n"
        "  %a = f32[8]{0} parameter(0)\n  %b = f32[64]{0} parameter(1)\n"
        "  %c = f32[8]{0} negate(%a)\n  %d = f32[64]{0} negate(%b)\n"
        "  ROOT %r = (f32[8]{0}, f32[64]{0}) tuple(%c, %d)\n}\n"
    )
    for in_host, size in ((True, 8), (False, 8 + 64)):
        (module,) = hlo.parser.parse(text if in_host else text.replace(":S(5)", ""))
        use = memory_use(Analysis(module))
        assert use is not None and use.peak_bytes == 2 * 4 * size
    arguments = GroupBytes("params", 1, 32), GroupBytes("opt_state", 1, 256, True)
    breakdown = Breakdown(
        "p", arguments, (GroupBytes("opt_state", 1, 256, True),), 0, 0, 0, None, False, 0, None
    )
    assert breakdown.total == 32 == sum(size for _, size in breakdown.parts)


def test_memory_of_a_chip_does_not_count_arguments_in_host_memory() -> None:
    """XLA for CPUs counts them as those of the device, and its text has no copies of them."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("data",))
    near = NamedSharding(mesh, PartitionSpec("data"))
    needed = []
    for kind in ("device", "pinned_host"):
        far = near.with_memory_kind(kind)
        shapes = [jax.ShapeDtypeStruct((64, 64), "float32", sharding=one) for one in (near, far)]
        move = jax.jit(lambda w, m: w + jax.device_put(m, near))
        snapshot = inspector.inspect(move, *shapes)
        needed.append(memory.fit(snapshot, V5E).need)
    argument = 64 * 64 * 4 // 4
    assert needed[0] is not None and needed[0].peak_bytes >= 2 * argument
    assert needed[1] is None or needed[1].peak_bytes <= argument


def test_what_is_alive_is_never_more_than_what_a_job_needs() -> None:
    """A job keeps results of programs, each of which needs less."""
    chip = hardware.CHIPS["v5e"]
    known = glances.planned()
    need = memory.fit(known, chip).need
    assert need is not None
    needed = need.peak_bytes
    for alive, fits in ((needed - 1, memory.fit(known, chip).fits), (needed + 1, None), (2**40, False)):
        fit = memory.fit(dataclasses.replace(known, most_alive_bytes=alive), chip)
        assert fit.need is not None
        assert fit.fits is fits and fit.need.peak_bytes == max(alive, needed)
        assert fit.need.at_least == (alive > needed) or need.at_least
        shown = assess(dataclasses.replace(known, most_alive_bytes=alive), chip).memory
        assert shown is not None and shown.peak_bytes == sum(shown.parts.values()) == max(alive, needed)


def test_a_loop_that_only_passes_a_value_on_writes_and_reads_nothing() -> None:
    """Two scans of the forward pass keep values; the loops of the backward pass carry these, and one copy.

    Indices that the backward pass makes and the optimizer reads are no gradient.
    """
    mesh = Mesh(np.array(jax.devices()[:2]), ("d",))
    rows = NamedSharding(mesh, PartitionSpec("d"))

    def step(weights, x, chosen):
        def loss(weights):
            layer = lambda rows, weight: (jnp.tanh(rows @ weight), None)  # noqa: E731
            values = jax.lax.scan(layer, x, weights)[0]
            picked = jnp.take_along_axis(values, chosen[:, None], axis=1)
            return jnp.sum(jnp.square(values)) + jnp.sum(jnp.square(picked))

        return weights - 0.1 * jax.grad(loss)(weights)

    types = (((3, 32, 32), "float32", None), ((64, 32), "float32", rows), ((64,), "int32", rows))
    arguments = [jax.ShapeDtypeStruct(shape, dtype, sharding=on) for shape, dtype, on in types]
    (module,) = hlo.parser.parse(jax.jit(step).lower(*arguments).compile().as_text())
    use = memory_use(Analysis(module))
    assert use is not None
    kept = [value for value in use.values if value.group == "activation"]
    assert sum(value.bytes for value in kept if value.shape == "f32[3,32,32]") >= 3 * 32 * 32 * 4
    assert all(value.shape.startswith("f32") for value in use.values if value.group == "gradient")


def test_a_sum_of_the_backward_pass_that_begins_with_zeros_is_no_activation() -> None:
    """The zeros have the name of the forward operation whose gradient is summed into them."""
    text = (
        "HloModule m, is_scheduled=true, entry_computation_layout={(f32[8]{0}, f32[2]{0})->f32[8]{0}}\n\n"
        "ENTRY %main (a: f32[8], u: f32[2]) -> f32[8] {\n"
        "  %a = f32[8]{0} parameter(0)\n  %u = f32[2]{0} parameter(1)\n"
        "  %n = f32[] constant(0)\n  %i = s32[] constant(2)\n"
        '  %kept = f32[8]{0} cosine(%a), metadata={op_name="jit(f)/jvp()/sin"}\n'
        '  %zeros = f32[8]{0} broadcast(%n), dimensions={}, metadata={op_name="jit(f)/jvp(jit(relu))/max"}\n'
        "  %sum = f32[8]{0} dynamic-update-slice(%zeros, %u, %i), "
        'metadata={op_name="jit(f)/transpose(jvp())/scatter-add"}\n'
        '  ROOT %r = f32[8]{0} multiply(%sum, %kept), metadata={op_name="jit(f)/transpose(jvp())/mul"}\n}\n'
    )
    (module,) = hlo.parser.parse(text)
    use = memory_use(Analysis(module))
    assert use is not None
    assert {value.name for value in use.values if value.group == "activation"} == {"kept"}
