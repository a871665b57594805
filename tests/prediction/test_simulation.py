"""The simulated schedule against sums that are done by hand here."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.machines.hardware import CHIPS
from inspector.machines.links import Ring, TorusLink
from inspector.prediction.calibration import ChipConstants
from inspector.prediction.collective_cost import expected
from inspector.prediction.simulation import Simulated, simulate
from inspector.prediction.step_parts import critical_path
from inspector.records.snapshot import Collective, Program, ScheduledOperation
from tests.prediction.schedules import schedule

CHIP = CHIPS["v5e"]
LINKS = {("data",): TorusLink((Ring(16, 4.5e10, 1e-6),))}
CONSTANTS = ChipConstants(compute_factor=1.0, link_efficiency=1.0, hbm_efficiency=1.0, head_width=128)
PAYLOAD = 180_000_000
GATHER = expected("all-gather", PAYLOAD, LINKS["data",], CONSTANTS).seconds
MILLISECOND = 1_500_000  # cycles of a v5e


def collective(axes: tuple[str, ...] | None = ("data",)) -> Collective:
    return Collective("all-gather", True, "g", "main", 1, False, axes, 16, 1, PAYLOAD, PAYLOAD)


def operation(name: str, opcode: str = "fusion", **fields: object) -> ScheduledOperation:
    return ScheduledOperation(name, opcode, **fields)  # type: ignore[arg-type]


def run(*operations: ScheduledOperation, **others: tuple[ScheduledOperation, ...]) -> Simulated:
    scheduled = schedule(*operations, **others)
    program = Program("step", collectives=(collective(), collective(None)), schedule=scheduled)
    return simulate(program, CHIP, LINKS, CONSTANTS)


BEGIN = operation("s", begins=True, collective=0)
SHORT = operation("a", cycles=MILLISECOND, flops=1.0)
LONG = operation("b", cycles=20 * MILLISECOND, flops=1.0)


def test_the_gather_takes_as_long_as_its_formula():
    assert 0.0009 < GATHER < 0.0025  # 180 MB over a ring of 16 with 90 GB/s into each chip


@pytest.mark.parametrize(("work", "seconds"), [(SHORT, 0.001), (LONG, 0.020)])
def test_a_collective_overlaps_with_what_runs_before_its_end(work, seconds):
    simulated = run(BEGIN, work, operation("d", awaits=0), SHORT)
    assert simulated.seconds == pytest.approx(max(GATHER, seconds) + 0.001)
    assert simulated.totals.exposed.get("data", 0) == pytest.approx(max(0, GATHER - seconds))
    assert simulated.totals.seconds == pytest.approx(simulated.seconds)


def test_a_synchronous_collective_and_two_on_the_same_links():
    both = run(operation("g", "all-gather", collective=0), operation("h", "all-gather", collective=0))
    assert both.seconds == pytest.approx(2 * GATHER)
    begun = run(BEGIN, BEGIN, operation("d", awaits=0), operation("e", awaits=1))
    assert begun.seconds == pytest.approx(2 * GATHER)


GATHERS = operation("g", "all-gather", collective=0)


def beside(*operations: ScheduledOperation, **others: tuple[ScheduledOperation, ...]) -> Simulated:
    """Run a program whose first collective runs beside the products."""
    program = Program(
        "step", collectives=(collective(), collective()), schedule=schedule(*operations, **others)
    )
    return simulate(program, CHIP, LINKS, CONSTANTS, beside={0})


@pytest.mark.parametrize("sent", [(GATHERS,), (BEGIN, operation("d", awaits=0))])
def test_the_core_waits_for_transfers_beside_products_at_the_end_alone(sent):
    assert beside(*sent, LONG).seconds == pytest.approx(0.020)
    short = beside(*sent, SHORT)
    assert short.seconds == pytest.approx(GATHER)
    assert short.totals.exposed["data"] == pytest.approx(GATHER - 0.001)
    assert short.totals.transfers["data", False] == pytest.approx(GATHER)


@pytest.mark.parametrize("times", [1, 3, 4, 50, 100_000])
@pytest.mark.parametrize(("work", "seconds"), [(SHORT, 0.001), (LONG, 0.020)])
def test_transfers_beside_products_queue_over_all_iterations(times, work, seconds):
    simulated = beside(operation("w", "while", runs=("body",), times=times), body=(GATHERS, work))
    assert simulated.seconds == pytest.approx(times * max(GATHER, seconds))
    assert simulated.totals.seconds == pytest.approx(simulated.seconds)


def test_a_transfer_that_the_core_waits_for_goes_before_those_beside_products():
    awaited = operation("h", "all-gather", collective=1)
    simulated = beside(GATHERS, GATHERS, awaited, SHORT)
    assert simulated.totals.exposed_by[1] == pytest.approx(GATHER)
    assert simulated.seconds == pytest.approx(3 * GATHER)  # the others end later by as much


@pytest.mark.parametrize("times", [0, 1, 2, 7, 100_000])
def test_a_loop_is_its_iterations(times):
    simulated = run(operation("w", "while", runs=("body",), times=times), body=(LONG, SHORT))
    assert simulated.seconds == pytest.approx(times * 0.021)
    assert simulated.totals.matrix == pytest.approx(times * 0.021)
    inside = [span for span in simulated.spans if span.basis != "loop"]
    assert len(inside) == min(times, 1) * 2
    rest = [span.end - span.start for span in simulated.spans if span.basis == "loop"]
    assert sum(rest) == pytest.approx(max(times - 1, 0) * 0.021)


def test_a_loop_awaits_what_the_previous_iteration_began():
    body = (operation("d", awaits=2), SHORT, BEGIN)
    simulated = run(operation("w", "while", runs=("body",), times=5), body=body)
    # The first iteration waits for nothing, and the last gather outlives the loop.
    assert simulated.seconds == pytest.approx(5 * 0.001 + 4 * GATHER)


def test_a_conditional_takes_its_longest_branch():
    both = {"short": (SHORT,), "long": (LONG,)}
    simulated = run(operation("c", "conditional", runs=("short", "long"), times=1), **both)
    assert simulated.seconds == pytest.approx(0.020)
    assert simulated.totals.matrix == pytest.approx(0.020)


def test_without_an_estimate_the_roofline_counts():
    reads = operation("r", bytes=int(CHIP.hbm_bytes_per_second * 0.01), flops=0.0)
    assert run(reads).seconds == pytest.approx(0.01)
    multiplies = operation("m", bytes=8, flops=CHIP.flops_per_second["bf16"] * 0.8, dtype="bf16")
    assert run(multiplies).seconds == pytest.approx(1.0)
    assert run(multiplies).totals.by_roofline == pytest.approx(1.0)


@pytest.mark.parametrize(("cycles", "seconds"), [(100, 0.030), (20, 0.020)])
def test_a_product_takes_no_longer_than_its_flops_and_its_bytes(cycles, seconds):
    """The compiler's estimate for parts of a windowed product is up to five times its FLOPs at the peak."""
    moved, flops = int(CHIP.hbm_bytes_per_second * 0.01), CHIP.flops_per_second["bf16"] * 0.8 * 0.02
    product = operation("m", cycles=cycles * MILLISECOND, bytes=moved, flops=flops, dtype="bf16")
    assert run(product).seconds == pytest.approx(seconds)
    unknown = replace(product, dtype="c64")
    assert run(unknown).seconds == pytest.approx(cycles / 1000)


@pytest.mark.parametrize(("head", "times"), [(None, 1), (64, 2), (128, 1), (192, 4 / 3)])
def test_a_head_takes_whole_matrix_units_in_a_kernel(head, times):
    flops = CHIP.flops_per_second["bf16"] * 0.5
    kernel = operation("k", "custom-call", bytes=8, flops=flops, dtype="bf16", head=head)
    assert run(kernel).seconds == pytest.approx(times)


UNKNOWN = {
    "a missing body": operation("w", "while", runs=("nowhere",), times=2),
    "a computation that runs itself": operation("w", "call", runs=("main",), times=1),
    "no mesh axes": operation("g", "all-gather", collective=1),
    "a missing collective": operation("g", "all-gather", collective=7),
    "no estimate": operation("x", "custom-call"),
    "FLOPs of a product": operation("x", "dot", bytes=8),
    "an unknown type": operation("m", bytes=8, flops=1e12, dtype="c64"),
    "a start that is missing": operation("d", awaits=9),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_cannot_be_priced_makes_the_step_unknown(name):
    simulated = run(SHORT, UNKNOWN[name], main2=(SHORT,))
    assert simulated.seconds is None
    assert simulated.unknown


BYTES = int(CHIP.hbm_bytes_per_second * 0.01)


@pytest.mark.parametrize(
    ("unsure", "least"),
    [
        (operation("scale.12", "custom-call", bytes=BYTES), 0.01),
        (operation("w", "while", runs=("body",), times=None), 0.001),
    ],
)
def test_a_kernel_without_flops_and_a_loop_without_a_count_give_a_lower_bound(unsure, least):
    simulated = run(SHORT, unsure, body=(SHORT,))
    assert simulated.seconds == pytest.approx(0.001 + least)
    (reason,) = simulated.at_least
    assert unsure.name.partition(".")[0] in reason and not simulated.unknown
    assert run(SHORT).at_least == ()


operations = st.lists(
    st.one_of(
        st.builds(lambda n: operation("a", cycles=n, flops=1.0), st.integers(0, 10**8)),
        st.builds(lambda n: operation("c", bytes=n, flops=0.0), st.integers(0, 10**9)),
        st.builds(
            lambda n: operation("t", "copy-start", begins=True, bytes=n, flops=0.0),
            st.integers(0, 10**9),
        ),
        st.builds(lambda n: operation("d", awaits=n), st.integers(0, 9)),
        st.just(BEGIN),
    ),
    min_size=10,
    max_size=10,
)


@given(operations, st.integers(0, 6))
def test_a_step_is_between_its_core_and_the_sum_of_all_operations(each, times):
    simulated = run(operation("w", "while", runs=("body",), times=times), body=tuple(each))
    alone = run(*[one for one in each if not one.begins and one.awaits is None])
    transfers = sum(GATHER if one.collective == 0 else run_alone(one) for one in each if one.begins)
    assert simulated.seconds is not None and alone.seconds is not None
    assert times * alone.seconds <= simulated.seconds * (1 + 1e-9)
    assert simulated.seconds <= times * (alone.seconds + transfers) * (1 + 1e-9)
    assert simulated.totals.seconds == pytest.approx(simulated.seconds, abs=1e-12)


def run_alone(scheduled_operation: ScheduledOperation) -> float:
    seconds = run(operation("t", bytes=scheduled_operation.bytes, flops=0.0)).seconds
    assert seconds is not None
    return seconds


def shorter(scheduled_operation: ScheduledOperation) -> ScheduledOperation:
    """The operation with nine tenths of its time."""
    return replace(
        scheduled_operation,
        cycles=None if scheduled_operation.cycles is None else scheduled_operation.cycles * 9 // 10,
        bytes=None if scheduled_operation.bytes is None else scheduled_operation.bytes * 9 // 10,
    )


@given(operations)
def test_only_the_critical_path_determines_the_step(schedule):
    simulated = run(*schedule)
    path = [simulated.spans[number] for number in critical_path(simulated.spans)]
    each = {(span.computation, span.position): span.end - span.start for span in path}
    assert sum(each.values()) == pytest.approx(simulated.seconds, abs=1e-9)
    for number, one in enumerate(schedule):
        changed = run(*schedule[:number], shorter(one), *schedule[number + 1 :])
        saved = simulated.seconds - changed.seconds
        if ("main", number) not in each:
            assert saved == pytest.approx(0, abs=1e-9)
        elif one.cycles or one.bytes:
            # Less than a tenth of its time if another path is then the longest.
            assert saved <= each["main", number] / 10 + 1e-8


def test_the_critical_path_passes_through_what_the_core_waits_for():
    hidden = run(BEGIN, LONG, operation("d", awaits=0), SHORT)
    assert {hidden.spans[n].resource for n in critical_path(hidden.spans)} == {"core"}
    exposed = run(SHORT, BEGIN, BEGIN, operation("d", awaits=2), SHORT)
    path = [exposed.spans[n] for n in critical_path(exposed.spans)]
    assert {(span.position, span.resource) for span in path} == {
        *((0, "core"), (4, "core")),
        *((number, f"data {sign}") for number in (1, 2) for sign in "→←"),
    }


def test_permutes_between_other_devices_are_messages_of_one_axis():
    ahead = replace(collective(), op="collective-permute", source_target_pairs=((0, 1), (1, 2)))
    back = replace(ahead, source_target_pairs=((1, 0), (2, 1)))
    listed = (ahead, back, ahead, collective())
    steps = [operation(str(place), one.op, collective=place) for place, one in enumerate(listed)]
    simulated = simulate(
        Program("step", collectives=listed, schedule=schedule(*steps)), CHIP, LINKS, CONSTANTS
    )
    assert simulated.totals.messages == {("data", False): 4}
