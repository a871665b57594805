"""The interval of a step before its compile: from published runs, or up to the time without fusion."""

from __future__ import annotations

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from inspector import hlo
from inspector.compiled.assumed import Assumed, assume
from inspector.hlo.analysis import Analysis, open_choices
from inspector.machines.hardware import CHIPS
from inspector.prediction.calibration import accuracy_table, before_compile_constants
from inspector.prediction.predicted import before_compile, checked_range, interval_of, mixtures_on, predicted
from inspector.prediction.step_model import modelled
from inspector.records.snapshot import (
    Collective,
    KernelWork,
    MatmulFlops,
    Mesh,
    MeshAxis,
    OpenChoice,
    Program,
    Work,
    WorkPart,
)
from tests.accuracy import test_fitting

MESH = Mesh((MeshAxis("data", 8),), devices=tuple(range(8)))


def program(flops: float, moved: float | None, instructions: float | None) -> Program:
    work = Work(flops, (MatmulFlops("bf16", flops),), moved, instructions=instructions)
    return Program("train_step", stage="propagated", collectives=(), work=work)


def test_a_step_as_long_as_published_ones_has_their_interval() -> None:
    predicted = before_compile(program(1e15, 1e13, 1e5), MESH, CHIPS["v5e"])
    known = interval_of("v5e", "before_compile")
    assert (predicted.interval.high, predicted.interval.runs) == (known.high, known.runs)
    assert predicted.low == pytest.approx(max(known.low * predicted.seconds, predicted.least))


@pytest.mark.parametrize("chip", ["a100", "v4", "b200"])
def test_a_chip_with_few_published_steps_has_no_interval(chip: str) -> None:
    predicted = before_compile(program(1e15, 1e13, 1e5), MESH, CHIPS[chip])
    assert predicted.interval is None and predicted.outside
    assert predicted.least <= predicted.seconds <= predicted.most


def test_a_step_without_large_matrix_products_has_no_interval() -> None:
    """A stencil that moves 1 TB takes longer than a published step, but is of another kind."""
    stencil = before_compile(with_traffic(1e12, 1e12), MESH, CHIPS["v5e"])
    assert stencil.seconds > 1 and stencil.interval is None and stencil.outside
    assert before_compile(with_traffic(1e15, 1e12), MESH, CHIPS["v5e"]).interval is not None


@pytest.mark.parametrize("payload", [1, 10**3, 10**6, 10**8, 10**10, 10**12])
def test_a_step_takes_at_least_its_longest_transfer(payload: int) -> None:
    program = replace(test_fitting.program(1, 1e9, payload), stage="propagated")
    mesh, chip = test_fitting.MESH, test_fitting.CHIP
    predicted = before_compile(program, mesh, chip)
    bound = modelled(program, mesh, chip).lower_seconds
    assert predicted.high >= predicted.seconds >= predicted.low >= bound > 0
    assert (
        sum(predicted.totals.exposed.values()) <= predicted.seconds == pytest.approx(predicted.totals.seconds)
    )


@pytest.mark.parametrize("between", [1, 1.5, 3])
def test_transfers_are_hidden_behind_computation_only_as_long_as_it_takes(between: float) -> None:
    program = replace(test_fitting.program(1, 1e16, 1), stage="propagated")
    mesh, chip = test_fitting.MESH, test_fitting.CHIP
    compute = before_compile(program, mesh, chip).totals.matrix
    payload = 10**9
    moved = replace(test_fitting.program(1, 1, payload), stage="propagated")
    seconds = max(term.combined for term in modelled(moved, mesh, chip).terms)
    # Transfers that take 1, 1.5 and 3 times as long as the computation.
    long = replace(
        test_fitting.program(1, 1e16, round(payload * between * compute / seconds)),
        stage="propagated",
    )
    predicted = before_compile(long, mesh, chip)
    hidden = compute * (1 + between * before_compile_constants().exposed_share)
    assert predicted.seconds == pytest.approx(max(hidden, between * compute), rel=0.01)


def waits(chip: str, flops: float, *collectives: Collective) -> float:
    """Return the seconds for which a program with these products and collectives waits, each of 1 GB."""
    result = replace(program(flops, None, None), collectives=collectives)
    mesh = Mesh((MeshAxis("x", 16),), devices=tuple(range(16)))
    return sum(before_compile(result, mesh, CHIPS[chip]).totals.waits.values())


def transfer(op: str, arrays: tuple[str, ...] | None = ("params/w",), **more: object) -> Collective:
    known = Collective(op, False, op, "main", 1, False, ("x",), 16, 1, 10**9, 10**9)
    return replace(known, arrays=arrays, **more)  # type: ignore[arg-type]


# Which compilers make reductions asynchronous: `tests/machines/test_overlap_options.py` compiles them.
@pytest.mark.parametrize(
    ("chip", "in_full"), [("v5e", True), ("v6e", True), ("tpu7x", False), ("h100", False)]
)
def test_reductions_wait_in_full_where_the_compiler_keeps_them_synchronous(chip: str, in_full: bool) -> None:
    share = before_compile_constants().exposed_share
    for op in ("reduce-scatter", "all-reduce"):
        result = replace(program(1e16, None, None), collectives=(transfer(op),))
        mesh = Mesh((MeshAxis("x", 16),), devices=tuple(range(16)))
        (term,) = (t for t in modelled(result, mesh, CHIPS[chip]).terms if t.kind == "communication")
        assert waits(chip, 1e16, transfer(op)) == pytest.approx(term.inside * (1.0 if in_full else share))


@pytest.mark.parametrize("op", ["all-gather", "reduce-scatter", "all-reduce"])
def test_activations_move_beside_the_products_that_need_them_on_tpus(op: str) -> None:
    beside, other = transfer(op, (), operation="dot_general"), transfer(op)
    assert waits("v5e", 1e16, beside) == 0 < waits("v5e", 1e16, other)
    # What takes longer than all products is exposed, and the step is at least that long.
    few = before_compile(program(1e9, None, None), MESH, CHIPS["v5e"]).totals.matrix
    whole = waits("v5e", 1e9, beside)
    assert whole + few == pytest.approx(waits("v5e", 0.0, beside), rel=0.05)


def test_activations_move_beside_reads_and_writes_of_hbm() -> None:
    """The products of a small model are limited by HBM, and a transfer runs beside them all the same."""
    beside = transfer("all-gather", (), operation="dot_general")
    mesh = Mesh((MeshAxis("x", 16),), devices=tuple(range(16)))
    bound = replace(with_traffic(1e12, 1e12), collectives=(beside,))
    assert sum(before_compile(bound, mesh, CHIPS["v5e"]).totals.waits.values()) == 0


@pytest.mark.parametrize(
    "moved",
    [
        transfer("all-gather", (), operation="multiply"),
        transfer("all-gather", (), operation=None),
        transfer("all-gather", None, operation="dot_general"),
        transfer("all-to-all", (), operation="dot_general"),
    ],
)
def test_other_values_do_not_move_beside_products(moved: Collective) -> None:
    assert waits("v5e", 1e16, moved) > 0


def test_an_axis_that_moves_weights_moves_no_activations_beside_products() -> None:
    """A quantized weight is no array of the state, but is gathered where other weights are."""
    quantized, weight = transfer("all-gather", (), operation="dot_general"), transfer("all-gather")
    alone = waits("v5e", 1e17, weight)
    assert waits("v5e", 1e17, weight, replace(quantized, name="q")) == pytest.approx(2 * alone, rel=0.01)
    small = replace(weight, payload_bytes=10**6, wire_bytes_per_device=10**6)
    assert waits("v5e", 1e17, small, quantized) < 0.01 * alone


def test_on_gpus_activations_wait_as_other_transfers_do() -> None:
    assert waits("h100", 1e17, transfer("all-gather", (), operation="dot_general")) == pytest.approx(
        waits("h100", 1e17, transfer("all-gather"))
    )


def with_traffic(flops: float, moved: float, fusions: float = 0.0) -> Program:
    result = program(flops, None, None)
    return replace(result, work=replace(result.work, fused_bytes=moved, fusions=fusions))


@pytest.mark.parametrize("chip", ["v5e", "h100"])
def test_traffic_takes_its_bytes_over_the_achieved_bandwidth(chip: str) -> None:
    predicted = before_compile(with_traffic(1e15, 1e12), MESH, CHIPS[chip])
    alone = before_compile(with_traffic(1e15, 0.0), MESH, CHIPS[chip])
    rate = CHIPS[chip].hbm_bytes_per_second * 0.85
    assert predicted.seconds - alone.seconds == pytest.approx(1e12 / rate)
    assert predicted.totals.memory == pytest.approx(1e12 / rate)


@pytest.mark.parametrize("chip", ["v5e", "h100"])
def test_bytes_of_products_are_a_part_of_the_products(chip: str) -> None:
    """As in a schedule, whose instructions of matrix products read and write HBM, too."""
    program = with_traffic(1e15, 1e12)
    of_products = replace(program, work=replace(program.work, product_bytes=7e11))
    alone, found = (before_compile(one, MESH, CHIPS[chip]).totals for one in (program, of_products))
    rate = CHIPS[chip].hbm_bytes_per_second * 0.85
    assert found.memory == pytest.approx(3e11 / rate)
    assert found.matrix == pytest.approx(alone.matrix + 7e11 / rate)
    assert found.seconds == pytest.approx(alone.seconds)


def test_each_fusion_of_a_gpu_is_started() -> None:
    for chip, each in (("h100", 2e-6), ("v5e", 0.0)):
        many = before_compile(with_traffic(1e12, 1e9, 5000), MESH, CHIPS[chip])
        none = before_compile(with_traffic(1e12, 1e9), MESH, CHIPS[chip])
        assert many.seconds - none.seconds == pytest.approx(5000 * each)


def test_a_kernel_of_attention_has_its_own_efficiency() -> None:
    program = with_traffic(8e14, 0.0)
    kernel = replace(program, work=replace(program.work, attention=KernelWork(3e14, 2e14)))
    types = {"bf16": 1e14, "f32": 2e14}
    mixed = replace(program, work=replace(program.work, attention=KernelWork(3e14, 2e14, "bf16", types)))
    for chip in (CHIPS["v5e"], CHIPS["h100"]):
        peak, efficiency = chip.peak("bf16").flops_per_second, before_compile_constants().of(chip)
        expected = 5e14 / peak / efficiency + 2e14 / peak / 0.5
        assert before_compile(kernel, MESH, chip).seconds == pytest.approx(expected)
        # Products with scores in float32 are slower than the kernel, which has them in bfloat16.
        less = 2e14 / chip.peak("f32").flops_per_second - 2e14 / peak
        assert before_compile(mixed, MESH, chip).seconds == pytest.approx(expected - less / efficiency)


@pytest.mark.parametrize(
    ("chip", "widths", "times"),
    [
        *[("tpu7x", (64, 64), 4), ("tpu7x", (128, 128), 2), ("tpu7x", (192, 128), 1.6)],
        *[("tpu7x", (256, 256), 1), ("v6e", (128, 128), 1), ("h100", (64, 64), 1)],
        *[("v5p", (64, 64), 2), ("v5p", (192, 128), 1.2), ("v5p", (256, 256), 1)],
    ],
)
def test_short_heads_take_as_long_as_a_matrix_unit_is_wide(
    chip: str, widths: tuple[int, ...], times: float
) -> None:
    program, peak = with_traffic(8e14, 0.0), CHIPS[chip].peak("bf16").flops_per_second
    whole, short = (
        before_compile(
            replace(
                program, work=replace(program.work, attention=KernelWork(3e14, 2e14, "bf16", widths=given))
            ),
            MESH,
            CHIPS[chip],
        ).seconds
        for given in ((), widths)
    )
    share = 0.75 if chip == "tpu7x" else 0.5
    assert short - whole == pytest.approx((times - 1) * 2e14 / peak / share)


@pytest.mark.parametrize("dtype", ["bf16", "f8e4m3fn"])
def test_products_of_experts_have_their_own_efficiency(dtype: str) -> None:
    program = with_traffic(8e14, 0.0)
    whole = {"grouped": {dtype: 3e14}, "grouped_tiles": {dtype: 4e14}}
    experts = replace(program, work=replace(program.work, **whole))
    masked = replace(program, work=replace(program.work, **whole, grouped_masked={dtype: 1e14}))
    known = before_compile_constants()
    for chip in (CHIPS["tpu7x"], CHIPS["v5p"]):
        peak, of_dtype = (chip.peak(name).flops_per_second for name in ("bf16", dtype))
        share = known.of_grouped(chip, dtype)
        expected = (8e14 / peak - 3e14 / of_dtype) / known.of(chip) + 4e14 / of_dtype / share
        assert before_compile(experts, MESH, chip).seconds == pytest.approx(expected)
        # Masks take longer beside a wide matrix unit.
        more = {"tpu7x": 0.8, "v5p": 0.2}[chip.name] * 1e14 / of_dtype / share
        assert before_compile(masked, MESH, chip).seconds == pytest.approx(expected + more)


def test_the_efficiency_of_narrow_products_of_experts_is_apart() -> None:
    known = before_compile_constants()
    chip = CHIPS["tpu7x"]  # which has runs of two models with each type
    assert known.of_grouped(chip, "f8e5m2") < known.of_grouped(chip, "bf16") < known.of(chip)
    assert known.of_grouped(CHIPS["v5p"], "s8") == known.of_grouped(CHIPS["v5p"], "bf16")  # no such runs
    assert known.of_grouped(CHIPS["v5e"], "bf16") == known.of(CHIPS["v5e"])  # no run of experts


def test_arguments_and_results_are_read_and_written_once() -> None:
    chip = CHIPS["v5e"]
    result = program(1e12, 1e13, 500)
    moved = replace(result, work=replace(result.work, boundary_bytes=16e9))
    added = before_compile(moved, MESH, chip).seconds - before_compile(result, MESH, chip).seconds
    # 16 GB at 0.81 TB/s of HBM (v5e data sheet), of which copies reach 85%.
    assert added == pytest.approx(16e9 / 0.81e12 / 0.85, rel=0.02)


def test_nothing_hides_the_transfers_of_a_short_step() -> None:
    program = replace(test_fitting.program(1, 1e9, 10**6), stage="propagated")
    predicted = before_compile(program, test_fitting.MESH, test_fitting.CHIP)
    compute, moved = predicted.totals.matrix, sum(predicted.totals.exposed.values())
    assert predicted.seconds == pytest.approx(compute + moved)
    assert predicted.least == modelled(program, test_fitting.MESH, test_fitting.CHIP).lower_seconds


def of_length(seconds: float) -> Program:
    """Return a program of matrix products that is predicted to take this long on v5e."""
    chip = CHIPS["v5e"]
    peak = chip.peak("bf16").flops_per_second * before_compile_constants().of(chip)
    return with_traffic(seconds * peak, 0.0)


def test_nothing_hides_transfers_below_a_tenth_of_the_shortest_published_step() -> None:
    chip, shortest = test_fitting.CHIP, checked_range("tpu").seconds
    peak = chip.peak("bf16").flops_per_second * before_compile_constants().of(chip)
    short, long = (
        sum(
            before_compile(
                replace(test_fitting.program(1, share * shortest * peak, 10**6), stage="propagated"),
                test_fitting.MESH,
                chip,
            ).totals.exposed.values()
        )
        for share in (0.05, 0.2)
    )
    assert long == pytest.approx(before_compile_constants().exposed_share * short)


def test_the_range_is_that_of_the_published_runs() -> None:
    rows = [row for row in accuracy_table()["rows"] if row.get("before_compile") and row["measured"]]
    rows = [row for row in rows if CHIPS[row["chip"]].kind == "tpu"]
    known = checked_range("tpu")
    assert known.seconds == min(row["before_compile"] for row in rows)
    assert known.chips == max(row["chips"] for row in rows)
    assert 0 < known.flops == min(row["flops"] for row in rows)
    assert 0 < known.moved == min(row["moved"] for row in rows)


def test_a_step_beyond_the_published_ones_is_outside_and_has_bounds() -> None:
    known = checked_range("tpu")
    large = max(10 * known.seconds, 2 * known.flops / 1e14)
    inside = with_traffic(of_length(large).work.matmul[0].flops, 2 * known.moved)
    assert before_compile(inside, MESH, CHIPS["v5e"]).outside is None
    work = inside.work
    beyond = {
        "short": of_length(0.9 * known.seconds),
        "bytes": replace(inside, work=replace(work, fused_bytes=0.5 * known.moved)),
    }
    for one in beyond.values():
        predicted = before_compile(one, MESH, CHIPS["v5e"])
        assert predicted.outside and predicted.interval is None and predicted.record() is None
        assert predicted.low == predicted.least <= predicted.seconds <= predicted.most == predicted.high
    devices = 2 * round(known.chips)
    many = Mesh((MeshAxis("data", devices),), devices=tuple(range(devices)))
    assert before_compile(inside, many, CHIPS["v5e"]).outside


def test_bounds_are_wider_the_farther_a_program_is_from_the_published_ones() -> None:
    shares = (0.9, 0.3, 0.1, 0.01, 0.001)
    predicteds = [
        before_compile(of_length(s * checked_range("tpu").seconds), MESH, CHIPS["v5e"]) for s in shares
    ]
    widths = [predicted.high / predicted.seconds for predicted in predicteds]
    assert widths == sorted(widths) and widths[-1] > 2 * widths[0]
    assert [predicted.outside for predicted in predicteds] == list(
        dict.fromkeys(predicted.outside for predicted in predicteds)
    )


def test_the_runs_of_mixtures_of_experts_are_counted_for_programs_with_experts() -> None:
    rows = [row for row in accuracy_table()["rows"] if row["chip"] == "tpu7x" and row["before_compile"]]
    # Gemma 4 31B and Llama are dense.
    mixtures = sum(not row["model"].startswith(("llama", "gemma4-31b")) for row in rows)
    assert mixtures_on("tpu7x") == mixtures == 10 and mixtures_on("v5e") == 0
    program = with_traffic(8e15, 1e12)
    experts = replace(
        program, work=replace(program.work, grouped={"bf16": 3e15}, grouped_tiles={"bf16": 4e15})
    )
    of_experts, dense = (before_compile(each, MESH, CHIPS["tpu7x"]) for each in (experts, program))
    assert of_experts.interval.runs == dense.interval.runs
    assert "10 of them of mixtures of experts" in of_experts.runs_text
    assert "experts" not in dense.runs_text


@pytest.mark.parametrize("payload", [10**4, 10**7, 10**9])
@pytest.mark.parametrize("nested", [False, True])
def test_an_upper_bound_holds_all_iterations_of_loops_with_a_limit(payload: int, nested: bool) -> None:
    """A short step exposes all transfers, a long one a share of them."""
    limits = {"while.1": 300, "while.2": 20}
    within = ("while.1", "while.2") if nested else ("while.1",)
    one = test_fitting.program(1, 1e9, payload)
    (collective,) = one.collectives
    product = (MatmulFlops("bf16", 1e9),)
    solver = replace(
        one,
        stage="propagated",
        schedule=None,
        collectives=(replace(collective, executions=None, executions_per_iteration=1, within=within),),
        work=Work(1e9, product, 8.0, parts=(WorkPart(within, 1e9, product, 8.0, 8.0, 1.0),)),
        open_choices=tuple(OpenChoice(name, "loop", most=limits[name]) for name in within),
    )
    bounds = predicted(solver, test_fitting.MESH, test_fitting.CHIP)
    assert bounds.most is not None and bounds.seconds <= bounds.most
    for iteration in bounds.each_iteration:
        times = iteration.most if iteration.label == "while.1" else limits["while.1"] * limits["while.2"]
        assert bounds.most >= (times - 1) * (iteration.high or iteration.seconds)
    for trips in (1, 2, 7, 20):
        stated = assume(solver, Assumed({name: trips * limits[name] // 20 for name in within}))
        assert predicted(stated, test_fitting.MESH, test_fitting.CHIP).seconds <= bounds.most


@pytest.mark.parametrize("name", ["eigh", "cholesky", "qr", "svd", "inv", "solve", "matrix_power", "norm"])
def test_a_step_has_an_upper_end_only_without_calls_of_lapack(name: str) -> None:
    """Also if a loop of unknown trip count, whose condition limits it, is around the call."""
    solve = {
        "matrix_power": lambda x: x @ x,
        "solve": lambda x: jax.scipy.linalg.solve_triangular(x, x),
    }.get(name, getattr(jnp.linalg, name))

    def step(x):
        def body(state):
            y = jax.tree.leaves(solve(state[0]))[0]
            return state[0] + y.sum(), state[1] + 1

        return jax.lax.while_loop(lambda state: (state[0][0, 0] < 1) & (state[1] < 9), body, (x, 0))

    x = jnp.eye(64)
    for function in (solve, step):
        text = jax.jit(function).lower(x).compile().as_text()
        (module,) = hlo.parser.parse(text)
        analysis = Analysis(module)
        program = Program("f", stage="partitioned", collectives=(), work=hlo.work.work(module, analysis))
        program = replace(program, open_choices=open_choices(analysis))
        found = predicted(program, test_fitting.MESH, test_fitting.CHIP)
        called = {*re.findall(r'custom_call_target="((?:lapack|blas)_\w+)"', text)}
        assert bool(called) == (name not in ("matrix_power", "norm"))
        if function is solve or called:
            assert bool(found.at_least) == bool(called) == any(name in str(found.at_least) for name in called)
        assert ((found.high or found.most) is None) == bool(called)
