"""Memory by part against the compiler's own analysis, and the sums against counts made another way."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import NamedSharding, PartitionSpec

from inspector import layout as layouts
from inspector.core.sharding import shards
from inspector.core.snapshot import (
    Array,
    Memory,
    Program,
    ProgramArray,
    Shard,
    Snapshot,
    Source,
)
from inspector.layout.plan import plan
from inspector.machines import hardware
from inspector.machines.prediction import memory
from inspector.machines.prediction.memory import Breakdown, Part
from inspector.producers.abstract import abstract_state
from inspector.producers.compiled_program import CompiledProgram
from inspector.producers.run import run_layout
from tests.figures import samples

SMALL = {"batch": "8", "layers": "2", "depth": "64", "steps": "1"}

LAYOUTS = {
    "default": {},
    "device axes": {"model": "mlp"},
    "FSDP": {"mesh": "8", "axes": "fsdp", "rules": "batch=fsdp,embed=fsdp"},
    "scan": {"scan": "true"},
    "sgd": {"optimizer": "sgd"},
    "momentum in bfloat16": {"optimizer": "momentum", "dtype": "bfloat16"},
    "three axes": {"mesh": "2x2x2", "axes": "a,b,c", "rules": "batch=a,hidden=c+b"},
    "nothing sharded": {"rules": ""},
    "one device": {"mesh": "1x1"},
    "odd sizes": {"mesh": "1x3", "batch": "5", "depth": "39"},
    "donated": {"donate": "true"},
    "scan, donated": {"scan": "true", "donate": "true"},
}

V5E = hardware.chip("v5e")


def run(monkeypatch: pytest.MonkeyPatch, fields: dict[str, str]) -> tuple[Snapshot, dict[str, Any]]:
    """A run, and what the compiler itself says of the memory of each of its programs."""
    analyses: dict[str, Any] = {}
    compile_it = CompiledProgram.compile

    def compile_and_ask(self: CompiledProgram, *arguments: Any, **named: Any) -> None:
        compile_it(self, *arguments, **named)
        analyses[self.name] = self._executable.memory_analysis()

    monkeypatch.setattr(CompiledProgram, "compile", compile_and_ask)
    found = run_layout(layouts.parse(SMALL | fields).unwrap(), lambda *_, **__: None)
    return found, analyses


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_figure_is_the_compilers(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    found, analyses = run(monkeypatch, LAYOUTS[name])
    programs = {one.program: one for one in memory.breakdowns(found)}
    assert programs.keys() == analyses.keys() == {"init", "train_step", "apply"}
    for program, analysis in analyses.items():
        one = programs[program]
        assert memory.summed(p.bytes for p in one.arguments) == analysis.argument_size_in_bytes
        assert memory.summed(p.bytes for p in one.outputs) == analysis.output_size_in_bytes
        assert one.temporaries == analysis.temp_size_in_bytes
        assert one.aliased == analysis.alias_size_in_bytes
        assert one.code == analysis.generated_code_size_in_bytes
        assert one.peak == analysis.peak_memory_in_bytes
        assert one.total == (
            analysis.argument_size_in_bytes
            + analysis.output_size_in_bytes
            + analysis.temp_size_in_bytes
            - analysis.alias_size_in_bytes
        )


@pytest.mark.parametrize("name", LAYOUTS)
def test_arrays_explain_all_arguments_but_the_random_key(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    found, analyses = run(monkeypatch, LAYOUTS[name])
    programs = {one.program: one for one in memory.breakdowns(found)}
    for program in ("train_step", "apply"):
        assert memory.UNEXPLAINED not in [part.name for part in programs[program].arguments]
    key = jax.eval_shape(lambda: jax.random.key(0))
    assert programs["init"].arguments == (Part(None, 0, key.dtype.itemsize),)
    # Counted another way: what lies on one device, shard by shard.
    step = {part.group: part.bytes for part in programs["train_step"].arguments}
    device = found.mesh.devices[0]
    for group in ("params", "opt_state", "other"):
        alive = [array for array in found.arrays if array.group == group]
        assert step.get(group, 0) == sum(array.bytes_per_device for array in alive)
    held = {one.owner: one.bytes for one in found.live if one.device == device}
    assert step["params"] == held["params"]
    assert step.get("opt_state", 0) + step["other"] == held["optimizer state and step"]
    assert step["batch"] == held["batch"]
    assert sum(step.values()) == analyses["train_step"].argument_size_in_bytes


@pytest.mark.parametrize("fields", [{}, {"scan": "true"}, {"optimizer": "sgd"}, LAYOUTS["FSDP"]])
def test_what_could_be_donated_is_what_the_compiler_aliases_when_it_is(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, str]
) -> None:
    without, _ = run(monkeypatch, fields)
    donated, analyses = run(monkeypatch, fields | {"donate": "true"})
    (before,) = [one for one in memory.breakdowns(without) if one.program == "train_step"]
    (after,) = [one for one in memory.breakdowns(donated) if one.program == "train_step"]
    assert before.aliased == 0
    assert before.not_donated == analyses["train_step"].alias_size_in_bytes > 0
    assert after.not_donated == 0


SIZES = st.integers(0, 40)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool"])
@given(shapes=st.lists(st.lists(SIZES, max_size=3), min_size=1, max_size=3), split=st.booleans())
def test_arguments_of_any_size_are_explained(
    dtype: str, shapes: list[list[int]], split: bool
) -> None:
    """Odd, empty and scalar arrays: the compiler adds nothing to what a device holds of them."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("x",))
    given_arrays, records, asked = [], [], []
    for number, shape in enumerate(shapes):
        axes = [
            "x" if split and number == 0 and i == 0 and n % 4 == 0 else None
            for i, n in enumerate(shape)
        ]
        sharding = NamedSharding(mesh, PartitionSpec(*axes))
        value = jax.ShapeDtypeStruct(tuple(shape), jnp.dtype(dtype), sharding=sharding)
        itemsize = value.dtype.itemsize
        spec = tuple(None if axis is None else (axis,) for axis in axes)
        given_arrays.append(value)
        records.append(
            Array(
                f"batch/{number}", "batch", tuple(shape), dtype, spec=spec,
                bytes=int(np.prod(shape)) * itemsize,
                bytes_per_device=int(np.prod(sharding.shard_shape(tuple(shape)))) * itemsize,
            )
        )  # fmt: skip
        asked.append(ProgramArray("input", f"batch/{number}", spec, spec, True))

    def same(*values: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(jnp.logical_not(value) for value in values)

    executable = jax.jit(same, keep_unused=True).lower(*given_arrays).compile()
    found = Snapshot(Source("cpu", "cpu", "now"), None, samples.mesh(x=4), tuple(records))
    program = Program("p", memory=records.memory_of(executable), shardings=tuple(asked))
    one = memory.breakdown(found, program)
    assert one.arguments == (Part("batch", len(shapes), program.memory.arguments),)


# --- What is not known, and what does not add up --------------------------------------------------


def with_memory(found: Snapshot, **changed: Any) -> Snapshot:
    figures = {
        "arguments": 100,
        "outputs": 50,
        "aliased": 10,
        "temporaries": 7,
        "code": 3,
    } | changed
    return dataclasses.replace(found, programs=(Program("p", memory=Memory(**figures)),))


def test_a_program_without_memory_has_no_breakdown() -> None:
    assert memory.breakdowns(samples.snapshot()) == ()


def test_arguments_that_nobody_listed_are_not_explained() -> None:
    (one,) = memory.breakdowns(with_memory(samples.snapshot()))
    assert one.arguments == (Part(None, 0, 100),)
    assert one.total == 100 + 50 + 7 - 10
    assert one.donatable is None and one.not_donated is None


@pytest.mark.parametrize("unknown", ["arguments", "outputs", "aliased", "temporaries"])
def test_what_is_unknown_makes_the_total_unknown(unknown: str) -> None:
    found = with_memory(samples.snapshot(), **{unknown: None})
    (one,) = memory.breakdowns(found)
    assert one.total is None
    fit = memory.fit(found, V5E)
    assert fit.fits is None and fit.at_least


def test_code_counts_where_it_lives_on_the_device() -> None:
    found = with_memory(samples.snapshot())
    on_tpu = dataclasses.replace(found, source=Source("tpu", "tpu:v5e:2x4", "now"))
    assert memory.breakdowns(on_tpu)[0].total == memory.breakdowns(found)[0].total + 3
    without = with_memory(on_tpu, code=None)
    assert memory.breakdowns(without)[0].total is None


def test_an_array_that_a_program_shards_otherwise_counts_as_the_program_has_it() -> None:
    mesh = samples.mesh(x=4)
    array = samples.array("params/w", (8, 8), (None, None), mesh)
    program = Program(
        "p",
        memory=Memory(arguments=100, outputs=0, aliased=0, temporaries=0),
        shardings=(ProgramArray("input", "params/w", None, (("x",), None), None),),
    )
    found = dataclasses.replace(samples.snapshot(mesh, (array,)), programs=(program,))
    assert memory.breakdown(found, program).arguments == (Part("params", 1, 64), Part(None, 0, 36))


@pytest.mark.parametrize("got", [(("y",), None), (("x",),), ((), ("x",)), (("x",), None)])
def test_a_sharding_that_cannot_be_leaves_the_argument_unexplained(got: Any) -> None:
    mesh = samples.mesh(x=4)
    array = samples.array("params/w", (7, 7), (None, None), mesh)
    program = Program(
        "p",
        memory=Memory(arguments=100, outputs=0, aliased=0, temporaries=0),
        shardings=(ProgramArray("input", "params/w", None, got, None),),
    )
    found = dataclasses.replace(samples.snapshot(mesh, (array,)), programs=(program,))
    assert memory.breakdown(found, program).arguments == (Part(None, 0, 100),)


def test_an_input_that_the_program_drops_is_no_argument() -> None:
    found = samples.snapshot()
    path = found.arrays[1].path
    program = Program(
        "p",
        memory=Memory(arguments=0, outputs=0, aliased=0, temporaries=0),
        shardings=(ProgramArray("input", path, None, None, None, used=False),),
    )
    assert memory.breakdown(found, program).arguments == ()


# --- Held on several devices ----------------------------------------------------------------------


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    data=st.data(),
)
def test_bytes_everywhere_are_those_of_all_shards(sizes: list[int], data: st.DataObject) -> None:
    names = [f"a{i}" for i in range(len(sizes))]
    mesh = samples.mesh(**dict(zip(names, sizes, strict=True)))
    split = data.draw(
        st.lists(st.sampled_from([None, *names]), max_size=3, unique_by=lambda x: x or object())
    )
    spec = tuple(None if name is None else (name,) for name in split)
    shape = tuple(mesh.ways(axes) * data.draw(st.integers(1, 3)) for axes in spec)
    array = samples.array("params/w", shape, spec, mesh)
    found = samples.snapshot(mesh, (array,))
    # Element by element: how many devices hold it.
    held = np.zeros(shape, dtype=int)
    for shard in shards(array, mesh):
        held[tuple(slice(*bounds) for bounds in shard.index)] += 1
    (group,) = memory.duplication_by_group(found)
    assert group.everywhere == held.sum() * 4
    assert group.duplicated == (held - 1).sum() * 4
    assert group.factor == pytest.approx(held.mean())
    listed = memory.duplication_by_array(found)
    assert [one.name for one in listed] == (["params/w"] if (held > 1).any() else [])


def test_uneven_shards_are_counted_one_by_one() -> None:
    on = samples.mesh(x=4)
    assert memory.bytes_everywhere(samples.uneven(on), on) == 240


def test_the_most_wasteful_array_comes_first() -> None:
    mesh = samples.mesh(x=4)
    arrays = (
        samples.array("params/small", (4,), (None,), mesh),
        samples.array("params/large", (400,), (None,), mesh),
        samples.array("params/split", (4000,), (("x",),), mesh),
    )
    listed = memory.duplication_by_array(samples.snapshot(mesh, arrays))
    assert [one.name for one in listed] == ["params/large", "params/small"]
    assert [one.duplicated for one in listed] == [3 * 1600, 3 * 16]


def test_what_is_not_known_is_not_counted() -> None:
    array = Array("params/w", "params", (4,), "float32")
    found = samples.snapshot(samples.mesh(x=2), (array,))
    (group,) = memory.duplication_by_group(found)
    assert (group.once, group.everywhere, group.duplicated, group.factor) == (None,) * 4
    assert memory.duplication_by_array(found) == ()
    held = dataclasses.replace(array, shape=(0,), bytes=0, shards=(Shard(0, ((0, 0),), 0),))
    assert memory.bytes_everywhere(held, found.mesh) == 0


# --- Does it fit? ---------------------------------------------------------------------------------


def needing(total: int, kind: str = "tpu") -> Snapshot:
    found = with_memory(
        samples.snapshot(), arguments=total, outputs=0, aliased=0, temporaries=0, code=0
    )
    return dataclasses.replace(found, source=Source(kind, kind, "now"))


@pytest.mark.parametrize("name", hardware.CHIPS)
def test_a_device_is_full_at_its_capacity_to_the_byte(name: str) -> None:
    chip = hardware.chip(name)
    capacity = memory.capacity_of(chip)
    assert 0.9 < capacity * chip.devices / chip.hbm_bytes < 1.1
    assert memory.fit(needing(capacity), chip).fits is True
    assert memory.fit(needing(capacity + 1), chip).fits is False


def test_too_much_is_said_with_figures() -> None:
    gib = 2**30
    fit = memory.fit(needing(18 * gib + gib // 2), V5E)
    assert not fit.fits and fit.program == "p"
    assert fit.sentence == (
        "p needs 18.5 GiB of the 15.8 GiB of a TPU v5e chip: 2.8 GiB too much. "
        "The largest part is arguments that no array explains, 18.5 GiB."
    )
    assert "as compiled for emulated devices" in memory.fit(needing(gib, "cpu"), V5E).sentence
    assert "14.8 GiB to spare" in memory.fit(needing(gib), V5E).sentence
    assert (
        "one of the 2 devices of a TPU v3 chip"
        in memory.fit(needing(gib), hardware.chip("v3")).sentence
    )


def test_a_plan_says_what_is_needed_at_least() -> None:
    layout = layouts.parse(SMALL).unwrap()
    planned = plan(layout, abstract_state(layout))
    fit = memory.fit(planned, V5E)
    found = run_layout(layout, lambda *_, **__: None)
    assert fit.fits is None and fit.at_least
    assert fit.needed == found.program("train_step").memory.arguments
    too_large = dataclasses.replace(
        planned,
        arrays=tuple(
            dataclasses.replace(array, bytes_per_device=10**12) for array in planned.arrays
        ),
    )
    fit = memory.fit(too_large, V5E)
    assert fit.fits is False and fit.at_least and "too much" in fit.sentence


def test_nothing_known_is_an_answer() -> None:
    found = samples.snapshot(arrays=())
    fit = memory.fit(found, V5E)
    assert fit.fits is None and fit.needed is None and "unknown" in fit.sentence


def test_outputs_of_a_donated_state_are_not_the_largest_part() -> None:
    one = Breakdown(
        "p", (Part("params", 1, 10), Part("opt_state", 1, 20)), (Part("params", 1, 30),), 30, 5, 0, None,
        False, 30,
    )  # fmt: skip
    assert one.largest == ("optimizer state", 20)
    assert one.total == 35 and one.not_donated == 0
