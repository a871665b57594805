"""The modelled step: its terms, bounds and intensities."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector import audit
from inspector.answers import time
from inspector.compare.compared import compared
from inspector.compare.questions import questions
from inspector.machines.hardware import CHIPS, chip, compute_time, hbm_time
from inspector.machines.links import OPS, Ring, TorusLink, collective_time
from inspector.machines.mesh_links import links_of
from inspector.prediction.step_model import (
    EMULATED_BYTES,
    Modelled,
    beside_products,
    bound_text,
    modelled,
)
from inspector.records.snapshot import (
    Collective,
    MatmulFlops,
    Mesh,
    MeshAxis,
    Program,
    ScheduledOperation,
    Snapshot,
    Source,
    Work,
)
from tests.prediction.schedules import schedule

MESH = Mesh((MeshAxis("data", 2), MeshAxis("model", 4)), tuple(range(8)), device_kind="cpu")
FLOPS, IDEAL = 4.0e12, 24.0e12


def collective(
    op: str = "all-reduce",
    axes: tuple[str, ...] | None = ("model",),
    payload: int | None = 10**8,
    executions: int | None = 3,
    conditional: bool = False,
) -> Collective:
    wire = None if payload is None else 2 * payload * 3 // 4
    return Collective(op, False, f"{op}.1", "main", executions, conditional, axes, 4, 2, payload, wire)


def work(flops: float | None, count: float | None = 1e9, dtype: str = "bfloat16") -> Work:
    return Work(flops, None if flops is None else (MatmulFlops(dtype, flops),), count)


def program(*collectives: Collective, **changes) -> Program:
    program = Program("train_step", collectives=collectives, work=work(FLOPS), ideal=work(IDEAL, count=None))
    return dataclasses.replace(program, **changes)


axes = st.sampled_from([("data",), ("model",), ("data", "model"), (), None])
amounts = st.one_of(st.none(), st.integers(0, 10**10))
collectives = st.lists(
    st.builds(
        collective,
        st.sampled_from(OPS),
        axes,
        amounts,
        st.one_of(st.none(), st.integers(0, 100)),
        st.booleans(),
    ),
    max_size=6,
)
works = st.one_of(
    st.none(),
    st.builds(
        work,
        st.one_of(st.none(), st.floats(0, 1e15)),
        st.one_of(st.none(), st.floats(0, 1e12)),
        st.sampled_from(["bfloat16", "float32", "float64", "int8"]),
    ),
)


@given(collectives, works, works, st.sampled_from(tuple(CHIPS.values())))
def test_bounds_are_the_longest_term_and_the_sum(moved, done, ideal, on) -> None:
    result = modelled(program(*moved, work=done, ideal=ideal), MESH, on)
    seconds = [term.seconds for term in result.terms]
    if None in seconds:
        assert (result.lower_seconds, result.upper_seconds, result.ruling) == (None, None, None)
        assert bound_text(result).startswith("unknown, because ")
    else:
        assert result.lower_seconds == max(seconds)
        assert result.upper_seconds == pytest.approx(sum(seconds))
        assert result.ruling is None or result.ruling.seconds == max(seconds)
    for term in result.terms:
        assert (term.formula != "") == (term.seconds is not None)
        assert term.seconds is not None or term.basis


@given(collectives, st.sampled_from(tuple(CHIPS.values())))
def test_communication_is_the_sum_of_its_collectives(moved, on) -> None:
    result = modelled(program(*moved), MESH, on)
    for term in result.terms:
        if term.axes is None or term.seconds is None:
            continue
        link = links_of(MESH, on, [term.axes])[term.axes]
        expected = 0.0
        for one in moved:
            if one.mesh_axes == term.axes:
                for _ in range(one.executions or 0):
                    expected += collective_time(one.op, one.payload_bytes, link).seconds
        assert term.seconds == pytest.approx(expected)


def term_of(modelled: Modelled, name: str):
    (term,) = [term for term in modelled.terms if term.name == name]
    return term


def test_compute_and_hbm_terms() -> None:
    for one in CHIPS.values():
        result = modelled(program(), MESH, one)
        assert term_of(result, "compute").seconds == compute_time(FLOPS, one, "bfloat16").seconds
        assert term_of(result, "HBM").seconds == hbm_time(1e9, one).seconds
        assert term_of(result, "HBM").basis == EMULATED_BYTES
    real = dataclasses.replace(MESH, device_kind="TPU v5p")
    assert term_of(modelled(program(), real, chip("v5p")), "HBM").basis == ""


def test_the_hbm_bytes_of_a_partitioned_program_are_unknown() -> None:
    result = modelled(program(stage="propagated", work=work(1e12), ideal=work(1e12)), MESH, chip("v5p"))
    assert result.hbm_bytes is None and result.intensities[0].flops_per_byte is None
    assert term_of(result, "HBM").seconds is None


def test_a_compiler_can_combine_the_collectives_of_a_partitioned_program() -> None:
    small = collective(payload=8, executions=3)
    larger = collective(payload=1000, executions=3)
    other = collective("all-gather", payload=8, executions=3)
    idle = {"work": work(1.0, count=1.0), "ideal": work(1.0)}
    link = links_of(MESH, chip("v5e"), (("model",),))[("model",)]
    result = modelled(program(small, larger, other, stage="propagated", **idle), MESH, chip("v5e"))
    gathered = collective_time("all-gather", 8, link).seconds
    combined = result.terms[2].combined
    assert combined == 3 * (collective_time("all-reduce", 1008, link).seconds + gathered)
    # Each waits for the hops, which take longer than the few bytes; an all-reduce does so in two rounds.
    assert result.terms[2].seconds == pytest.approx(3 * 5 * gathered)
    assert combined == pytest.approx(3 * 3 * gathered)
    # A compiler can drop collectives of a partitioned program, but none of its FLOPs.
    assert result.lower_seconds == pytest.approx(1.0 / 197e12)
    # Where the devices are is assumed, so the lower bound of a compiled one has one hop for each of the runs,
    # and those that the compiler did not combine can run at the same time.
    compiled = modelled(program(small, larger, other, **idle), MESH, chip("v5e"))
    assert compiled.lower_seconds == pytest.approx(3 * link.rings[0].hop_seconds)
    assert compiled.lower_seconds < compiled.terms[2].seconds


def test_mixed_operand_types() -> None:
    v5e = chip("v5e")
    mixed = Work(3e12, (MatmulFlops("bfloat16", 1e12), MatmulFlops("int8", 2e12)), 1.0)
    result = modelled(program(work=mixed), MESH, v5e)
    seconds = 1e12 / 1.97e14 + 2e12 / 3.94e14
    assert term_of(result, "compute").seconds == pytest.approx(seconds)
    assert result.flops_per_second == pytest.approx(3e12 / seconds)
    assert result.runs_as == ("bf16", "int8")


def test_float32_has_an_assumption() -> None:
    for name, word in (("v5p", "bfloat16 pass"), ("h100", "TF32")):
        result = modelled(program(work=work(FLOPS, dtype="float32")), MESH, chip(name))
        assert any(word in assumption for assumption in result.assumptions)


@pytest.mark.parametrize(
    "changes",
    [
        {"work": None},
        {"work": work(None)},
        {"work": work(FLOPS, count=None)},
        {"work": work(FLOPS, dtype="float64")},
        {"collectives": None},
        {"collectives": (collective(executions=None),)},
        {"collectives": (collective(payload=None),)},
        {"collectives": (collective(axes=None),)},
        {
            "collectives": (
                dataclasses.replace(collective(), op="collective-of-later", wire_bytes_per_device=None),
            )
        },
    ],
)
def test_unknown_input(changes) -> None:
    result = modelled(program(**changes), MESH, chip("v5p"))
    assert result.lower_seconds is None and result.utilisation is None
    assert any(term.seconds is None and term.basis for term in result.terms)


def test_collective_that_never_runs() -> None:
    result = modelled(
        program(collective(executions=0, payload=None), collective(axes=None, executions=0)),
        MESH,
        chip("v5p"),
    )
    assert term_of(result, "communication over model").seconds == 0
    assert result.lower_seconds is not None


def test_more_chips_than_a_pod() -> None:
    large = Mesh((MeshAxis("model", 512),), tuple(range(512)))
    result = modelled(program(collective()), large, chip("v6e"))
    assert term_of(result, "communication over model").seconds is None
    assert "pod" in term_of(result, "communication over model").basis


def test_wasted_work_and_utilization() -> None:
    result = modelled(program(), MESH, chip("v5p"))
    assert result.wasted == pytest.approx(1 - 24 / 32)
    # The program is compute-bound, so only repeated work lowers the utilization.
    assert result.ruling is not None and result.ruling.name == "compute"
    assert result.utilisation == pytest.approx(24 / 32)
    less = modelled(program(ideal=work(40e12)), MESH, chip("v5p"))
    assert less.wasted == pytest.approx(-0.25)
    # 24 of 30 FLOPs are 20% less, although 30 are 25% more than 24.
    assert time.wasted_text(less) == "none: devices compute 20.0% less than before partitioning"
    assert modelled(program(ideal=None), MESH, chip("v5p")).wasted is None
    assert modelled(program(work=work(0.0)), MESH, chip("v5p")).wasted is None


@given(st.floats(1e6, 1e15), st.floats(1e3, 1e13))
def test_critical_intensity_separates_compute_and_memory_bound(flops, count) -> None:
    result = modelled(program(work=work(flops, count)), MESH, chip("h100"))
    (hbm,) = result.intensities
    compute, memory = (term_of(result, name).seconds for name in ("compute", "HBM"))
    if compute != pytest.approx(memory):
        assert (hbm.flops_per_byte > hbm.critical) == (compute > memory)
    assert hbm.critical == pytest.approx(9.9e14 / 3.4e12)


def test_intensity_of_communication() -> None:
    result = modelled(program(collective()), MESH, chip("v5p"))
    over_model = result.intensities[1]
    assert over_model.flops_per_byte == pytest.approx(FLOPS / (3 * 1.5e8))
    # A line of 4 uses one link in one direction.
    assert over_model.critical == pytest.approx(4.59e14 / 9e10)


def test_given_links_replace_assumed_ones() -> None:
    known = {("model",): TorusLink((Ring(4, 1e9, 0.0),), assumption="measured")}
    result = modelled(program(collective(executions=1)), MESH, chip("v5p"), known)
    assert term_of(result, "communication over model").seconds == pytest.approx(2 * 1e8 / 2e9)
    assert result.assumptions == ("measured",)


def test_conditional_collective() -> None:
    result = modelled(program(collective(conditional=True)), MESH, chip("v5p"))
    assert "conditional" in term_of(result, "communication over model").basis


def test_an_operation_moves_no_more_bytes_than_its_cycles_allow():
    v5e = chip("v5e")
    operations = (
        # 1 ms, in which HBM moves 0.81 GB: the rest of its operands is not read, or in VMEM.
        ScheduledOperation("a", "fusion", cycles=1_500_000, bytes=10 * 10**9),
        ScheduledOperation("b", "fusion", cycles=1_500_000, bytes=10**6),
    )
    program = Program(
        "train_step",
        collectives=(),
        stage="compiled",
        work=Work(1.0, (MatmulFlops("bf16", 1.0),), 10.001e9),
        schedule=schedule(*operations),
    )
    result = modelled(program, MESH, v5e)
    assert result.hbm_bytes == pytest.approx(1e-3 * v5e.hbm_bytes_per_second + 1e6)
    assert result.lower_seconds == pytest.approx(1e-3, rel=0.01)
    bare = modelled(dataclasses.replace(program, schedule=None), MESH, v5e)
    assert bare.hbm_bytes == 10.001e9


def test_repeated_products_are_those_of_the_devices_of_the_program() -> None:
    """A program that runs on 12 devices of a mesh of 16: all figures count 12."""
    wide = dataclasses.replace(
        MESH, axes=(MeshAxis("data", 4), MeshAxis("model", 4)), devices=tuple(range(16))
    )
    part = program(devices=12, stage="compiled")
    share = 1 - IDEAL / (FLOPS * 12)
    model = modelled(part, wide, chip("v5e"))
    assert model.devices == 12 and model.wasted == pytest.approx(share)
    snapshot = Snapshot(Source("capture", None, "2026-01-01"), None, wide, (), (part,))
    rows = {row.title: row for row in questions(compared([("a", snapshot)]))}
    assert rows["Train step, repeated matrix products"].answers[0].value == pytest.approx(share)
    findings = [finding for finding in audit.audited(snapshot).findings if finding.code == "repeated-work"]
    assert [finding.ratio for finding in findings] == [pytest.approx(1 / (1 - share))]


def test_only_independent_collectives_are_one_message() -> None:
    """A chain of three takes three starts, and so do two loops with one each, run as often as the chain."""

    def messages(*depths: tuple[str, int | None]) -> float:
        collectives = (
            dataclasses.replace(collective(payload=8), computation=computation, depth=depth)
            for computation, depth in depths
        )
        return modelled(program(*collectives), MESH, CHIPS["v5e"]).terms[2].messages

    assert messages(("main", 0), ("main", 0), ("main", 0)) == messages(("main", None), ("body", None)) == 3
    assert messages(("main", 0), ("main", 1), ("main", 2)) == 9
    assert messages(("main", 0), ("body", 0)) == 6


PRODUCT = "jit(step)/jvp(Model)/mlp/dot_general"


def sent(op: str, name: str | None, arrays: tuple[str, ...] | None = (), **changes) -> Collective:
    return dataclasses.replace(collective(op), op_name=name, arrays=arrays, **changes)


@pytest.mark.parametrize(
    ("others", "beside"),
    [
        ((), {0, 1, 2}),
        ((sent("all-reduce", "jit(step)/norm/reduce_sum", payload_bytes=10**6),), {0, 1, 2}),
        ((sent("collective-permute", None),), {0, 1, 2, 3}),  # the compiler lost the name
        ((sent("all-gather", PRODUCT, ("params/kernel",), executions=30),), set()),  # weights
        ((sent("collective-permute", "jit(step)/shmap_body/ppermute", executions=30),), set()),
        ((sent("all-to-all", PRODUCT, executions=30),), set()),  # tokens on the way to experts
        ((sent("ragged-gather", PRODUCT, payload_bytes=1),), {0, 1, 2}),  # of a later XLA
    ],
)
def test_what_moves_activations_for_products_runs_beside_them(others, beside) -> None:
    permute = sent("collective-permute", PRODUCT)
    moved = sent("all-gather", PRODUCT), permute, permute
    assert beside_products(program(*moved, *others), CHIPS["v5p"]) == beside
    assert not beside_products(program(*moved, *others), CHIPS["h100"])


@pytest.mark.parametrize(
    "alone",
    [
        sent("collective-permute", "jit(step)/shmap_body/ppermute"),  # a stencil
        sent("collective-permute", "jit(step)/conv_general_dilated"),  # its edges
        sent("collective-permute", None),
        sent("all-reduce", "jit(sample)/reduce_sum"),
        sent("all-reduce", PRODUCT),  # no windows: of gradients
        sent("collective-permute", PRODUCT, None),
        sent("collective-permute", PRODUCT, network="dcn"),
    ],
)
def test_other_transfers_are_waited_for(alone) -> None:
    assert not beside_products(program(alone), CHIPS["v5e"])
