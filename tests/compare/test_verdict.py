"""Verdicts: what is better, what cannot be told, what cannot be compared, and that each says so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.compare.verdict import Compared, compared, headline, verdict, verdicts
from inspector.core.snapshot import Finding, Snapshot
from inspector.layout.plan import INDIVISIBLE
from inspector.machines import hardware
from inspector.machines.prediction.ratios import interval, pairs, ratio_interval
from tests.compare.glances import compiled, planned, sent

V5E, V5P = hardware.chip("v5e"), hardware.chip("v5p")


def of(*snapshots: Snapshot, chip=V5E) -> list[Compared]:
    return compared([("ABCDEFGH"[n], one) for n, one in enumerate(snapshots)], chip)


def step(flops: float, **layout) -> Snapshot:
    found = planned(sent(("data",), 1000), flops=flops)
    return replace(found, layout={"model": "transformer", "sizes": {"batch": 8, **layout}})


def with_step(one: Compared, **changed) -> Compared:
    own = one.assessment
    return replace(one, assessment=replace(own, step=replace(own.step, **changed)))


@given(st.floats(1e-4, 1e2), st.floats(1e-4, 1e2))
def test_an_answer_needs_the_whole_interval(first: float, second: float) -> None:
    a, b = of(step(1e12), step(1e12))
    found = verdict(with_step(a, seconds=first), with_step(b, seconds=second))
    assert found.ratio == pytest.approx(second / first)
    assert found.low <= found.ratio <= found.high and found.pairs > 0
    factor = ratio_interval(compiled=False).factor
    assert found.high / found.ratio == pytest.approx(factor)
    expected = "worse" if found.low > 1 else "better" if found.high < 1 else "not distinguishable"
    assert found.answer == expected
    # The other way round it is the opposite.
    back = verdict(with_step(b, seconds=second), with_step(a, seconds=first))
    mirror = {"worse": "better", "better": "worse"}
    assert back.answer == mirror.get(found.answer, found.answer)


def test_equal_layouts_are_not_distinguishable() -> None:
    (found,) = verdicts(of(step(1e12), step(1e12)))
    assert found.answer == "not distinguishable" and found.ratio == 1


def test_the_interval_contains_the_claimed_share_of_the_pairs() -> None:
    rows = [
        {"model": f"m{n % 7}", "chip": "v5e", "measured": 1.0, "left_out": 1.0 + 0.01 * n}
        for n in range(30)
    ]
    found = pairs(rows, "left_out")
    assert len(found) == sum(k * (k - 1) // 2 for k in (5, 5, 4, 4, 4, 4, 4))
    factor = interval(found).factor
    inside = [one for one in found if 1 / factor <= 2.718281828**one.error <= factor * 1.0001]
    assert 0.7 <= len(inside) / len(found) <= 1
    assert interval([]) is None


REJECTED = Finding("error", INDIVISIBLE, "batch of size 2 is not divisible by 4")


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (replace(step(1e12), findings=(REJECTED,)), "JAX rejects B"),
        (replace(step(1e12), layout={"model": "moe", "sizes": {"batch": 8}}), "moe"),
        (compiled(1), "train states"),
        (replace(step(1e12), programs=()), "unknown"),
    ],
)
def test_what_is_not_comparable_has_a_reason(other: Snapshot, named: str) -> None:
    for pair in (of(step(1e12), other), of(other, step(1e12))):
        (found,) = verdicts(pair)
        assert found.answer == "not comparable" and found.ratio is None
        assert named.replace("B", "").strip() in found.reason
        assert found.reason.split(":")[0].lower()[:12] in found.sentence.lower()


def test_what_cannot_run_comes_first_in_the_sentence() -> None:
    large = compiled(V5E.allocatable_bytes)
    large = replace(
        large, source=replace(large.source, kind="cpu", target="cpu"), mesh=planned().mesh
    )
    (found,) = verdicts(of(compiled(1), large, chip=V5E))
    assert found.sentence.startswith("B does not fit") and found.answer == "not comparable"
    (found,) = verdicts(of(replace(step(1e12), findings=(REJECTED,)), step(1e12)))
    assert found.sentence.startswith("JAX rejects A")


def test_plans_and_compiled_layouts_are_not_compared() -> None:
    (found,) = verdicts(of(replace(compiled(1), arrays=planned().arrays), planned(), chip=V5E))
    assert found.answer == "not comparable"


def test_a_plan_without_memory_traffic_has_no_verdict() -> None:
    vague = step(1e12)
    (program,) = vague.programs
    vague = replace(
        vague, programs=(replace(program, work=replace(program.work, boundary_bytes=None)),)
    )
    (found,) = verdicts(of(step(1e12), vague))
    assert found.answer == "not comparable" and "memory traffic" in found.reason


def test_another_batch_is_compared_by_token() -> None:
    (found,) = verdicts(of(step(1e15, batch=8), step(2e15, batch=16)))
    assert found.per_token and found.ratio == pytest.approx(1, rel=0.05)
    assert found.answer == "not distinguishable"
    (worse,) = verdicts(of(step(1e15, batch=8), step(1e15, batch=4)))
    assert worse.answer == "worse" and worse.ratio == pytest.approx(2, rel=0.05)


def test_other_types_are_the_same_model_but_named() -> None:
    (found,) = verdicts(of(step(1e12, remat="none"), step(1e12, remat="full")))
    assert found.answer == "not distinguishable" and "remat" in found.reason


def test_separate_runs_on_emulated_devices_are_no_basis() -> None:
    one = compiled(1)
    emulated = replace(
        one, source=replace(one.source, kind="cpu", target="cpu"), mesh=planned().mesh
    )
    (found,) = verdicts(of(emulated, emulated, chip=None))
    assert found.answer == "not comparable" and "emulated" in found.reason


def test_the_headline_names_the_shortest_step_of_several() -> None:
    every = of(step(1e15), step(4e15), step(1.01e15), replace(step(1e9), findings=(REJECTED,)))
    said = headline(every)
    assert said.startswith("A ") and "B (" in said and "C (" in said and "D (" in said
    assert said.index("not distinguishable") < said.index("slower") < said.index("not comparable")
    assert headline(every[:1]) == ""
    assert headline(every[:2]) == verdict(*every[:2]).sentence
