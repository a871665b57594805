"""The modelled step: every term from its own numbers, and nothing known that a term does not know."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.core.snapshot import (
    Collective,
    MatmulFlops,
    Mesh,
    MeshAxis,
    Program,
    Work,
)
from inspector.machines.hardware import CHIPS, chip
from inspector.machines.links import OPS, Ring, TorusLink, collective_time
from inspector.machines.mesh_links import links_of
from inspector.machines.prediction.cost import compute_time, hbm_time
from inspector.machines.prediction.step_model import (
    EMULATED_BYTES,
    Modelled,
    bound_text,
    intensity_text,
    modelled,
    text,
    wasted_text,
)

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
    return Collective(
        op, False, f"{op}.1", "main", executions, conditional, axes, 4, 2, payload, wire
    )


def work(flops: float | None, count: float | None = 1e9, dtype: str = "bfloat16") -> Work:
    return Work(flops, None if flops is None else (MatmulFlops(dtype, flops),), count)


def program(*collectives: Collective, **changes) -> Program:
    made = Program(
        "train_step", collectives=collectives, work=work(FLOPS), ideal=work(IDEAL, count=None)
    )
    return dataclasses.replace(made, **changes)


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
def test_the_step_is_between_its_longest_term_and_their_sum(moved, done, ideal, on) -> None:
    found = modelled(program(*moved, work=done, ideal=ideal), MESH, on)
    seconds = [term.seconds for term in found.terms]
    if None in seconds:
        assert (found.lower_seconds, found.upper_seconds, found.ruling) == (None, None, None)
        assert bound_text(found).startswith("unknown, for ")
    else:
        assert found.lower_seconds == max(seconds)
        assert found.upper_seconds == pytest.approx(sum(seconds))
        assert found.ruling is None or found.ruling.seconds == max(seconds)
    for term in found.terms:
        assert (term.formula != "") == (term.seconds is not None)
        assert term.seconds is not None or term.basis  # what is unknown says why
    lines = text(found).splitlines()
    assert "modelled on 8 devices of " + on.title in lines[0]
    assert all(any(term.name in line for line in lines) for term in found.terms)


@given(collectives, st.sampled_from(tuple(CHIPS.values())))
def test_an_axis_takes_what_its_collectives_take_one_by_one(moved, on) -> None:
    found = modelled(program(*moved), MESH, on)
    for term in found.terms:
        if term.axes is None or term.seconds is None:
            continue
        link = links_of(MESH, on, [term.axes])[term.axes]
        expected = 0.0
        for one in moved:
            if one.mesh_axes == term.axes:
                for _ in range(one.executions or 0):
                    expected += collective_time(one.op, one.payload_bytes, link).seconds
        assert term.seconds == pytest.approx(expected)


def term_of(found: Modelled, name: str):
    (term,) = [term for term in found.terms if term.name == name]
    return term


def test_compute_and_memory_are_those_of_the_device() -> None:
    for one in CHIPS.values():
        found = modelled(program(), MESH, one)
        assert term_of(found, "compute").seconds == compute_time(FLOPS, one, "bfloat16").seconds
        assert term_of(found, "HBM").seconds == hbm_time(1e9, one).seconds
        assert term_of(found, "HBM").basis == EMULATED_BYTES
    real = dataclasses.replace(MESH, device_kind="TPU v5p")
    assert term_of(modelled(program(), real, chip("v5p")), "HBM").basis == ""


def test_operand_types_run_at_their_own_peaks() -> None:
    v5e = chip("v5e")
    mixed = Work(3e12, (MatmulFlops("bfloat16", 1e12), MatmulFlops("int8", 2e12)), 1.0)
    found = modelled(program(work=mixed), MESH, v5e)
    seconds = 1e12 / 1.97e14 + 2e12 / 3.94e14
    assert term_of(found, "compute").seconds == pytest.approx(seconds)
    assert found.flops_per_second == pytest.approx(3e12 / seconds)
    assert found.runs_as == ("bf16", "int8")


def test_float32_says_as_what_it_runs() -> None:
    for name, word in (("v5p", "bfloat16 pass"), ("h100", "TF32")):
        found = modelled(program(work=work(FLOPS, dtype="float32")), MESH, chip(name))
        assert any(word in assumption for assumption in found.assumptions)


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
    ],
)
def test_what_is_unknown_leaves_the_step_unknown(changes) -> None:
    found = modelled(program(**changes), MESH, chip("v5p"))
    assert found.lower_seconds is None and found.utilisation is None
    assert "unknown" in text(found)


def test_what_never_runs_takes_no_time_though_its_bytes_are_unknown() -> None:
    found = modelled(
        program(collective(executions=0, payload=None), collective(axes=None, executions=0)),
        MESH,
        chip("v5p"),
    )
    assert term_of(found, "communication over model").seconds == 0
    assert found.lower_seconds is not None


def test_more_than_a_pod_leaves_communication_unknown() -> None:
    large = Mesh((MeshAxis("model", 512),), tuple(range(512)))
    found = modelled(program(collective()), large, chip("v6e"))
    assert term_of(found, "communication over model").seconds is None
    assert "pod" in term_of(found, "communication over model").basis


def test_wasted_and_utilisation_are_shares_of_all_devices() -> None:
    found = modelled(program(), MESH, chip("v5p"))
    assert found.wasted == pytest.approx(1 - 24 / 32)
    # Compute rules, so that the peak is lost to repeated work only.
    assert found.ruling is not None and found.ruling.name == "compute"
    assert found.utilisation == pytest.approx(24 / 32)
    less = modelled(program(ideal=work(40e12)), MESH, chip("v5p"))
    assert wasted_text(less) == "none: devices do 25.0% less than was written"
    assert wasted_text(modelled(program(ideal=None), MESH, chip("v5p"))) == "unknown"
    assert wasted_text(modelled(program(work=work(0.0)), MESH, chip("v5p"))) == "unknown"


@given(st.floats(1e6, 1e15), st.floats(1e3, 1e13))
def test_a_program_is_above_the_critical_intensity_exactly_where_compute_takes_longer(
    flops, count
) -> None:
    found = modelled(program(work=work(flops, count)), MESH, chip("h100"))
    (hbm,) = found.intensities
    compute, memory = (term_of(found, name).seconds for name in ("compute", "HBM"))
    if compute != pytest.approx(memory):
        assert (hbm.flops_per_byte > hbm.critical) == (compute > memory)
    assert "compute-bound from 291 FLOP/B" in intensity_text(hbm)


def test_communication_has_an_intensity_of_its_own() -> None:
    found = modelled(program(collective()), MESH, chip("v5p"))
    over_model = found.intensities[1]
    assert over_model.flops_per_byte == pytest.approx(FLOPS / (3 * 1.5e8))
    # A line of four: one link, one way.
    assert over_model.critical == pytest.approx(4.59e14 / 9e10)


def test_links_that_are_known_replace_the_assumed() -> None:
    known = {("model",): TorusLink((Ring(4, 1e9, 0.0),), "measured")}
    found = modelled(program(collective(executions=1)), MESH, chip("v5p"), known)
    assert term_of(found, "communication over model").seconds == pytest.approx(2 * 1e8 / 2e9)
    assert found.assumptions == ("measured",)


def test_conditionals_say_so() -> None:
    found = modelled(program(collective(conditional=True)), MESH, chip("v5p"))
    assert "conditional" in term_of(found, "communication over model").basis
