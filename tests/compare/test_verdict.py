"""Verdicts: what is better, what cannot be told, what cannot be compared, and that each says so."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.compare import amounts
from inspector.compare.compared import Compared, compared
from inspector.compare.question import mark
from inspector.compare.questions import measures
from inspector.compare.verdict import headline, verdict, verdicts
from inspector.layout.plan import INDIVISIBLE
from inspector.machines import hardware
from inspector.prediction.calibration import accuracy_table
from inspector.prediction.ratios import RunPair, interval, pairs, published
from inspector.records.assessment import StepPart
from inspector.records.snapshot import Finding, Snapshot
from tests.compare.glances import compiled, planned, sent

V5E, V5P = hardware.chip("v5e"), hardware.chip("v5p")


def of(*snapshots: Snapshot, chip=V5E) -> list[Compared]:
    return compared([("ABCDEFGH"[n], snapshot) for n, snapshot in enumerate(snapshots)], chip)


def step(flops: float, **layout) -> Snapshot:
    snapshot = planned(sent(("data",), 1000), flops=flops)
    return replace(snapshot, layout={"model": "transformer", "sizes": {"batch": 8, **layout}})


def with_step(compared: Compared, **changed) -> Compared:
    own = compared.assessment
    return replace(compared, assessment=replace(own, step=replace(own.step, **changed)))


def test_a_lower_bound_gives_no_verdict() -> None:
    a, b = of(step(1e15), step(1e15))
    for pair in (
        (with_step(a, at_least="a kernel", kind="at least"), b),
        (a, with_step(b, at_least="a kernel", kind="at least")),
    ):
        result = verdict(*pair)
        assert (result.answer, result.ratio) == ("not comparable", None)
        assert result.reason is not None and "a kernel" in result.reason


@given(st.floats(1e-4, 1e2), st.floats(1e-4, 1e2))
def test_an_answer_needs_the_whole_interval(first: float, second: float) -> None:
    a, b = of(step(1e15), step(1e15))
    result = verdict(with_step(a, seconds=first, parts=()), with_step(b, seconds=second, parts=()))
    assert result.ratio == pytest.approx(second / first)
    assert result.low <= result.ratio <= result.high and result.pairs > 0
    factor = published(compiled=False).factor
    assert result.high / result.ratio == pytest.approx(factor)
    expected = "worse" if result.low > 1 else "better" if result.high < 1 else "not distinguishable"
    assert result.answer == expected
    assert (result.reason == "published pairs") == (expected != "not distinguishable")
    # The other way round it is the opposite.
    back = verdict(with_step(b, seconds=second, parts=()), with_step(a, seconds=first, parts=()))
    mirror = {"worse": "better", "better": "worse"}
    assert back.answer == mirror.get(result.answer, result.answer)


def test_equal_layouts_are_not_distinguishable() -> None:
    (verdict,) = verdicts(of(step(1e15), step(1e15)))
    assert verdict.answer == "not distinguishable" and verdict.ratio == 1


def test_the_interval_is_as_narrow_as_the_share_of_right_pairs_allows() -> None:
    # Small predicted differences are wrong, larger ones right.
    pairs = [RunPair("m", "v5e", 0.01 * n if n > 10 else -0.1, 0.01 * n) for n in range(1, 31)]
    own = interval(pairs)
    right = [pair for pair in pairs if math.exp(pair.predicted) > own.factor]
    wrong = sum(pair.measured < 0 for pair in right)
    assert wrong / len(right) <= 0.05
    # A narrower one would call more pairs, of which more than 5% are wrong.
    more = [pair for pair in pairs if pair.predicted > math.log(own.factor) - 0.0101]
    assert sum(pair.measured < 0 for pair in more) / len(more) > 0.05
    assert interval([]) is None
    nothing = interval([RunPair("m", "v5e", -1.0, 0.5)])
    assert nothing.factor == pytest.approx(math.exp(1.5))


def test_the_interval_contains_half_of_the_measured_ratios() -> None:
    # The order of all is right, and each ratio is wrong by 5%.
    pairs = [RunPair("m", "v5e", 0.01 * n + 0.05, 0.01 * n) for n in range(1, 31)]
    own = interval(pairs)
    assert own.factor == pytest.approx(math.exp(0.05))


@pytest.mark.parametrize("compiled", [True, False])
def test_of_the_published_pairs_that_are_called_95_percent_are_right(compiled: bool) -> None:
    key = "left_out" if compiled else "before_compile"
    found, own = pairs(accuracy_table()["rows"], key), published(compiled)
    called = [pair for pair in found if abs(pair.predicted) > math.log(own.factor)]
    right = sum((pair.predicted > 0) == (pair.measured > 0) for pair in called)
    assert len(found) == own.pairs and len(called) > 10
    assert right / len(called) >= 0.95


def test_pairs_are_of_one_model_on_one_chip() -> None:
    rows = [
        {"model": f"m{n % 7}", "chip": "v5e", "measured": 1.0, "left_out": 1.0 + 0.01 * n} for n in range(30)
    ]
    assert len(pairs(rows, "left_out")) == sum(k * (k - 1) // 2 for k in (5, 5, 4, 4, 4, 4, 4))


REJECTED = Finding("error", INDIVISIBLE, "batch of size 2 is not divisible by 4")


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (replace(step(1e15), findings=(REJECTED,)), "JAX rejects B"),
        (replace(step(1e15), layout={"model": "moe", "sizes": {"batch": 8}}), "moe"),
        (replace(step(1e15), layout=None, arrays=step(1e15).arrays[2:]), "train states"),
        (compiled(1), "arrays"),  # parameters alone
        (replace(step(1e15), programs=()), "unknown"),
    ],
)
def test_what_is_not_comparable_has_a_reason(other: Snapshot, named: str) -> None:
    for pair in (of(step(1e15), other), of(other, step(1e15))):
        (verdict,) = verdicts(pair)
        assert verdict.answer == "not comparable" and verdict.ratio is None
        assert named.replace("B", "").strip() in verdict.reason
        assert verdict.reason.split(":")[0].lower()[:12] in verdict.sentence.lower()


def test_what_cannot_run_comes_first_in_the_sentence() -> None:
    large = compiled(V5E.allocatable_bytes)
    large = replace(large, source=replace(large.source, target=None), mesh=planned().mesh)
    (verdict,) = verdicts(of(compiled(1), large, chip=V5E))
    assert verdict.sentence.startswith("B does not fit") and verdict.answer == "worse"
    (verdict,) = verdicts(of(replace(step(1e15), findings=(REJECTED,)), step(1e15)))
    assert verdict.sentence.startswith("JAX rejects A")


def test_plans_and_compiled_layouts_are_not_compared() -> None:
    (verdict,) = verdicts(of(replace(compiled(1), arrays=planned().arrays), planned(), chip=V5E))
    assert verdict.answer == "not comparable"


def test_a_plan_without_memory_traffic_has_no_verdict() -> None:
    vague = step(1e15)
    (program,) = vague.programs
    vague = replace(vague, programs=(replace(program, work=replace(program.work, boundary_bytes=None)),))
    (verdict,) = verdicts(of(step(1e15), vague))
    assert verdict.answer == "not comparable" and "memory traffic" in verdict.reason


def test_marks_of_another_batch_say_of_what_they_are_and_which_sizes_differ() -> None:
    more = planned(sent(("data",), 1700), flops=2.5e15).programs
    same, other = (
        measures(of(step(1e15, batch=8), replace(step(2.5e15, batch=batch), programs=more)))
        for batch in (8, 16)
    )
    for rows, per in ((same, ""), (other, "per example")):
        by_kind = {row.kind: row.answers[1] for row in rows}
        assert by_kind["traffic"].per == per and ("batches" in by_kind["traffic"].remark) == bool(per)
        assert by_kind["time"].per == per and ("batches" in by_kind["time"].remark) == bool(per)
        assert by_kind["memory"].per == ""
        assert all(per in mark(by_kind[kind], words=False) for kind in ("traffic", "time"))


def test_another_batch_is_compared_by_token() -> None:
    (verdict,) = verdicts(of(step(1e15, batch=8), step(2e15, batch=16)))
    assert verdict.per_token and verdict.ratio == pytest.approx(1, rel=0.05)
    assert verdict.answer == "not distinguishable"
    (worse,) = verdicts(of(step(1e15, batch=8), step(1e15, batch=4)))
    assert worse.answer == "worse" and worse.ratio == pytest.approx(2, rel=0.05)


def test_other_types_are_the_same_model_but_named() -> None:
    (verdict,) = verdicts(of(step(1e15, remat="none"), step(1e15, remat="full")))
    assert verdict.answer == "not distinguishable" and "remat" in verdict.reason


def test_separate_runs_on_emulated_devices_are_no_basis() -> None:
    result = compiled(1)
    emulated = replace(result, source=replace(result.source, kind="cpu", target="cpu"), mesh=planned().mesh)
    recorded = replace(emulated, source=replace(result.source, kind="capture", target=None))
    for snapshot in (emulated, recorded):
        (verdict,) = verdicts(of(snapshot, snapshot, chip=None))
        assert verdict.answer == "not comparable" and "emulated" in verdict.reason


def test_the_headline_names_the_shortest_step_of_several() -> None:
    every = of(step(1e15), step(4e15), step(1.01e15), replace(step(1e9), findings=(REJECTED,)))
    said = headline(every)
    assert said.startswith("A ") and "B (" in said and "C (" in said and "D (" in said
    assert said.index("not distinguishable") < said.index("slower") < said.index("not comparable")
    assert headline(every[:1]) == ""
    assert headline(every[:2]) == verdict(*every[:2]).sentence


def test_without_a_chip_memory_traffic_and_flops_have_verdicts() -> None:
    lighter, heavier = (
        replace(snapshot, programs=(replace(snapshot.programs[0], flops_per_device=flops),))
        for snapshot, flops in ((step(1e15), 100.0), (step(1e15), 250.0))
    )
    heavier = replace(heavier, programs=(replace(heavier.programs[0], collectives=(sent(("data",), 2000),)),))
    (verdict,) = verdicts(of(lighter, heavier, chip=None))
    assert (verdict.answer, verdict.ratio) == ("not comparable", None)
    figures = {figure.figure: (figure.answer, figure.ratio) for figure in verdict.figures}
    assert figures == {"memory": ("equal", 1), "traffic": ("worse", 2), "flops": ("worse", 2.5)}
    assert verdict.sentence.index("2 times as much") < verdict.sentence.index("no chip")
    (back,) = verdicts(of(heavier, lighter, chip=None))
    assert [figure.answer for figure in back.figures] == ["equal", "better", "better"]
    said = headline(of(lighter, heavier, lighter, chip=None))
    assert said.startswith("A and C have the least traffic and FLOPs")


def test_figures_of_another_batch_are_those_of_the_same_work() -> None:
    double = replace(step(2e15, batch=16))
    (program,) = double.programs
    double = replace(double, programs=(replace(program, collectives=(sent(("data",), 2000),)),))
    (verdict,) = verdicts(of(step(1e15, batch=8), double))
    assert {figure.figure: figure.answer for figure in verdict.figures}["traffic"] == "equal"
    assert "sends as much per example" in verdict.sentence


@pytest.mark.parametrize("baseline", [0, 1, 2])
def test_another_model_does_not_prevent_the_verdict_of_two_others(baseline: int) -> None:
    other = replace(step(1e15), layout={"model": "moe", "sizes": {"batch": 8}})
    for chip in (V5E, None):
        said = headline(of(other, step(1e15), step(4e15), chip=chip), baseline)
        assert "No two of these" not in said
        if chip is not None:
            assert said.startswith("B has the shortest step") and "C (" in said and "A (" in said


@pytest.mark.parametrize("chip", ["v5e", "h100"])
def test_layouts_of_the_guide_are_ranked_by_what_they_share(chip: str) -> None:
    def short(name: str, **seconds: float) -> Compared:
        (one,) = of(step(1e15), chip=hardware.chip(chip))
        parts = (
            StepPart("memory", seconds["hbm"], latency=seconds["kernels"]),
            StepPart("inside", seconds["sent"], "data", latency=seconds["starts"], messages=1),
        )
        whole = seconds["hbm"] + seconds["sent"]
        return with_step(replace(one, name=name), seconds=whole, outside="it is short", parts=parts)

    a, b, c = (
        short(name, hbm=hbm, kernels=kernels, sent=sent, starts=starts)
        for name, hbm, kernels, sent, starts in {
            "v5e": (
                ("a", 142e-6, 0, 210e-6, 17.6e-6),
                ("b", 567e-6, 0, 1356e-6, 37.6e-6),
                ("c", 72e-6, 0, 27.8e-6, 18.8e-6),
            ),
            "h100": (
                ("a", 169e-6, 140e-6, 52e-6, 22e-6),
                ("b", 284e-6, 170e-6, 230e-6, 100e-6),
                ("c", 152e-6, 140e-6, 18.5e-6, 15.6e-6),
            ),
        }[chip]
    )
    for was, now, answer in (
        (a, b, "worse"),
        (b, a, "better"),
        (a, c, "better"),
        (c, a, "worse"),
        (b, c, "better"),
    ):
        result = verdict(was, now)
        assert (result.answer, result.reason, result.pairs) == (answer, "less of everything", 0)
        assert (result.low < 1) == (result.high < 1) == (answer == "better")


@pytest.mark.parametrize("least", [1 << 20, 4 << 20])
def test_a_shorter_step_that_sends_more_over_faster_links_says_both(least: int) -> None:
    """The traffic is part of the proof if it is less; if it is more, it is a clause of its own."""
    a, b = (
        with_step(one, seconds=seconds, outside="it is short", parts=(StepPart("memory", seconds),))
        for one, seconds in zip(
            of(
                *(
                    replace(step(1e15), programs=planned(sent(("data",), size)).programs)
                    for size in (2 << 20, least)
                )
            ),
            (1e-3, 5e-4),
            strict=True,
        )
    )
    result = verdict(a, b)
    assert (result.answer, result.reason) == ("better", "less of everything")
    proof, _, others = result.sentence.partition("). ")
    was, now = (amounts.answers("traffic", (a, b), 0)[n].text for n in (0, 1))
    assert (f"{now} instead of {was}" in proof) == (least < 2 << 20)
    assert ("sends" in others) == (least > 2 << 20)


def test_a_trade_says_what_decides_it_and_which_efficiencies_were_not_measured() -> None:
    a, b = of(step(1e15), step(1e15))

    def short(one: Compared, hbm: float, sent: float, starts: float) -> Compared:
        parts = StepPart("memory", hbm), StepPart("inside", sent, "data", latency=starts, messages=9)
        return with_step(one, seconds=hbm + sent, outside="it is short", parts=parts)

    result = verdict(short(a, 300e-6, 10e-6, 1e-6), short(b, 200e-6, 90e-6, 80e-6))
    assert result.answer == "not distinguishable" and result.reason in result.sentence
    assert result.reason.startswith("B is better if a collective starts in less than")
    decided = verdict(short(a, 350e-6, 10e-6, 1e-6), short(b, 300e-6, 900e-6, 1e-6))
    assert (decided.answer, decided.reason) == ("worse", "common efficiencies")
    assert "v5e" in decided.assumption and result.assumption is None
