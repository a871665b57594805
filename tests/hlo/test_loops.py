"""Trip counts match a simulation of the loop, and the counts that compilers print."""

from __future__ import annotations

import operator

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from inspector import hlo
from inspector.hlo.analysis import Analysis
from inspector.hlo.dataflow import call_sites
from inspector.hlo.loops import Loops
from inspector.hlo.module import Module
from tests.hlo import given

COMPARE = {
    "LT": operator.lt, "LE": operator.le, "GT": operator.gt,
    "GE": operator.ge, "EQ": operator.eq, "NE": operator.ne,
}  # fmt: skip


def trips(module: Module) -> list[int | None]:
    loops = Loops(module, call_sites(module))
    return [
        loops.trip_count(computation, instruction)
        for computation in module.computations
        for instruction in computation.instructions
        if instruction.opcode == "while"
    ]


# One loop in several forms that compilers write. `i` is the index of the counter in the state.
PLAIN = """
body {{
  p = (f32[8], {t}[]) parameter(0)
  i = {t}[] get-tuple-element(p), index=1
  x = f32[8] get-tuple-element(p), index=0
  s = {t}[] constant({step})
  j = {t}[] {op}(i, s)
  r = f32[8] all-reduce(x), to_apply=sum
  ROOT t = (f32[8], {t}[]) tuple(r, j)
}}
condition {{
  p = (f32[8], {t}[]) parameter(0)
  i = {t}[] get-tuple-element(p), index=1
  n = {t}[] constant({limit})
  ROOT c = pred[] compare({sides}), direction={direction}
}}
ENTRY main {{
  x = f32[8] parameter(0)
  a = {t}[] constant({start})
  t = (f32[8], {t}[]) tuple(x, a)
  ROOT w = (f32[8], {t}[]) while(t), condition=condition, body=body
}}
"""
FUSED = """
adds (a: {t}[], b: {t}[]) -> {t}[] {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT j = {t}[] {op}(a, b)
}}
compares (a: {t}[], n: {t}[]) -> pred[] {{
  i = {t}[] parameter(0)
  n = {t}[] parameter(1)
  ROOT c = pred[] compare({sides}), direction={direction}
}}
body {{
  p = (f32[8], {t}[]) parameter(0)
  s = {t}[] constant({step})
  i = {t}[] get-tuple-element(p), index=1
  k = {t}[] copy(i)
  j = {t}[] fusion(k, s), kind=kLoop, calls=adds
  x = f32[8] get-tuple-element(p), index=0
  y = f32[8] all-reduce(x), to_apply=sum
  t = (f32[8], {t}[]) tuple(y, j)
  ROOT o = (f32[8], {t}[]) opt-barrier(t)
}}
condition {{
  p = (f32[8], {t}[]) parameter(0)
  n = {t}[] constant({limit})
  i = {t}[] get-tuple-element(p), index=1
  ROOT c = pred[] fusion(i, n), kind=kLoop, calls=compares
}}
inner (x: f32[8], a: {t}[]) -> f32[8] {{
  x = f32[8] parameter(0)
  a = {t}[] parameter(1)
  cs = ({t}[], {t}[], u32[]) copy-start(a)
  cd = {t}[] copy-done(cs)
  t = (f32[8], {t}[]) tuple(x, cd)
  w = (f32[8], {t}[]) while(t), condition=condition, body=body
  ROOT g = f32[8] get-tuple-element(w), index=0
}}
ENTRY main {{
  x = f32[8] parameter(0)
  a = {t}[] constant({start})
  ROOT r = f32[8] call(x, a), to_apply=inner
}}
"""
# The limit is an unchanged part of the state, and the comparison has its operands exchanged.
CARRIED = """
body {{
  p = ({t}[], {t}[]) parameter(0)
  i = {t}[] get-tuple-element(p), index=0
  n = {t}[] get-tuple-element(p), index=1
  s = {t}[] constant({step})
  j = {t}[] {op}(i, s)
  x = f32[8] constant(0)
  y = f32[8] all-reduce(x), to_apply=sum
  ROOT t = ({t}[], {t}[]) tuple(j, n)
}}
condition {{
  p = ({t}[], {t}[]) parameter(0)
  i = {t}[] get-tuple-element(p), index=0
  n = {t}[] get-tuple-element(p), index=1
  c = pred[] compare({sides}), direction={negated}
  ROOT d = pred[] not(c)
}}
ENTRY main {{
  a = {t}[] constant({start})
  n = {t}[] constant({limit})
  t = ({t}[], {t}[]) tuple(a, n)
  ROOT w = ({t}[], {t}[]) while(t), condition=condition, body=body
}}
"""
NEGATED = {"LT": "GE", "LE": "GT", "GT": "LE", "GE": "LT", "EQ": "NE", "NE": "EQ"}
MIRRORED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "EQ": "EQ", "NE": "NE"}


def simulated(start: int, step: int, limit: int, direction: str, low: int, high: int) -> int | None:
    """Run the loop and return its trip count; None if the counter overflows first."""
    value, count = start, 0
    while COMPARE[direction](value, limit):
        value += step
        count += 1
        if not low <= value <= high:
            return None
        if count > 1000:
            return None
    return count


@pytest.mark.parametrize("form", [PLAIN, FUSED, CARRIED], ids=["plain", "fused", "carried"])
@for_all(
    st.integers(-20, 20), st.integers(-6, 6), st.integers(-20, 20), st.sampled_from(list(COMPARE)),
    st.booleans(), st.sampled_from(["s8", "s32", "s64"]),
)  # fmt: skip
def test_trip_count_matches_execution(
    form: str, start: int, step: int, limit: int, direction: str, mirrored: bool, dtype: str
) -> None:
    written = MIRRORED[direction] if mirrored else direction
    subtracts = step < 0 and mirrored
    text = form.format(
        t=dtype, start=start, limit=limit, step=-step if subtracts else step,
        op="subtract" if subtracts else "add", sides="n, i" if mirrored else "i, n",
        direction=written, negated=NEGATED[written],
    )  # fmt: skip
    low, high = (-128, 127) if dtype == "s8" else (-(2**31), 2**31 - 1)
    expected = simulated(start, step, limit, direction, low, high)
    (module,) = hlo.parser.parse(f"HloModule m\n{text}")
    assert trips(module) == [expected]
    (collective,) = hlo.collectives.collectives(module)
    assert collective.executions == expected


def test_nested_loops_and_several_call_sites() -> None:
    text = PLAIN.format(t="s32", start=0, step=1, limit=5, op="add", sides="i, n", direction="LT")
    # An outer loop of 7 calls the inner loop twice, and the entry calls it once.
    outer = """
{inner}
condition.1 {{
  p = (f32[8], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=1
  n = s32[] constant(7)
  ROOT c = pred[] compare(i, n), direction=LT
}}
body.1 {{
  p = (f32[8], s32[]) parameter(0)
  x = f32[8] get-tuple-element(p), index=0
  i = s32[] get-tuple-element(p), index=1
  s = s32[] constant(1)
  j = s32[] add(i, s)
  one = (f32[8], s32[]) call(x), to_apply=main
  y = f32[8] get-tuple-element(one), index=0
  two = (f32[8], s32[]) call(y), to_apply=main
  z = f32[8] get-tuple-element(two), index=0
  ROOT t = (f32[8], s32[]) tuple(z, j)
}}
ENTRY outer {{
  x = f32[8] parameter(0)
  a = s32[] constant(0)
  first = (f32[8], s32[]) call(x), to_apply=main
  y = f32[8] get-tuple-element(first), index=0
  t = (f32[8], s32[]) tuple(y, a)
  ROOT w = (f32[8], s32[]) while(t), condition=condition.1, body=body.1
}}
""".format(inner=text.replace("ENTRY main", "main"))
    (module,) = hlo.parser.parse(outer)
    runs = Analysis(module).runs
    assert runs["main"].count == 7 * 2 + 1
    assert runs["body"].count == 5 * (7 * 2 + 1)
    assert runs["condition"].count == 6 * (7 * 2 + 1)
    assert runs["condition.1"].count == 8


UNKNOWN = {
    "a limit that is an argument": ("n = s32[] constant(9)", "n = s32[] parameter(1)"),
    "a step that is an argument": ("s = s32[] constant(2)", "s = s32[] partition-id()"),
    "a start that is an argument": ("a = s32[] constant(0)", "a = s32[] parameter(1)"),
    "a counter that doubles": ("s32[] add(i, s)", "s32[] multiply(i, s)"),
    "no comparison": ("compare(i, n), direction=LT", "custom-call(i, n), custom_call_target=\"f\""),
    "a body that is not there": ("body=body", "body=other"),
    "a condition that is not there": ("condition=condition", "condition=other"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_trip_count(name: str) -> None:
    text = PLAIN.format(t="s32", start=0, step=2, limit=9, op="add", sides="i, n", direction="LT")
    assert trips(hlo.parser.parse(text)[0]) == [5]
    before, after = UNKNOWN[name]
    assert before in text
    (module,) = hlo.parser.parse(text.replace(before, after))
    assert trips(module) == [None]
    (collective,) = hlo.collectives.collectives(module)
    # A body without a caller does not run.
    assert collective.executions == (0 if "body" in name and "not there" in name else None)


def test_known_trip_count_is_used() -> None:
    text = PLAIN.format(t="s32", start=0, step=2, limit=9, op="add", sides="i, n", direction="LT")
    for printed in (
        'backend_config={"known_trip_count":{"n":"42"}}',
        r'backend_config="{\"known_trip_count\":{\"n\":\"42\"}}"',
        'backend_config={"a":{"b":1},"known_trip_count": {"n": 42}}',
    ):
        (module,) = hlo.parser.parse(text.replace("body=body", f"body=body, {printed}"))
        assert trips(module) == [42]


def test_recursive_garbage_terminates() -> None:
    ring = "a {\n p = f32[] parameter(0)\n r = f32[] call(p), to_apply=b\n s = f32[] all-reduce(p)\n}\n"
    (module,) = hlo.parser.parse(ring + ring.replace("a {", "b {").replace("=b", "=a"))
    assert [collective.executions for collective in hlo.collectives.collectives(module)] == [None, None]
    chain = "\n".join(f" a{n} = s32[] add(a{n - 1}, a{n - 1})" for n in range(1, 400))
    text = PLAIN.format(t="s32", start=0, step=2, limit=9, op="add", sides="i, n", direction="LT")
    text = text.replace("a = s32[] constant(0)", f"a0 = s32[] constant(0)\n{chain}")
    (module,) = hlo.parser.parse(text.replace("tuple(x, a)", "tuple(x, a399)"))
    assert trips(module) == [None]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("own scan", [12]),
        ("own scan and gradient", [12, 12]),
        ("loops.hlo", [5, 4, 1_000_000, None]),
        given.shared("hlo_llama31_70b_bf16_16x8.hlo", [80, 80]),
        given.shared("hlo_llama31_405b_bf16_16x8.hlo", [126, 126]),
        given.shared("hlo_llama3_8b_bf16_activation_offloading_1x8.hlo", [32, 32]),
        given.shared("cpu.hlo", [None]),
        given.shared("while_with_known_trip_count.hlo", [7]),
        given.shared("scan_12_layers_grad.compiled.hlo", [12, 12]),
    ],
)
def test_loops_of_whole_programs(name: str, expected: list[int | None]) -> None:
    (module,) = hlo.parser.parse(given.text(name))
    assert trips(module) == expected
    # The printed trip count agrees with the condition.
    unprinted = given.text(name).replace('"known_trip_count"', '"hidden"')
    assert trips(hlo.parser.parse(unprinted)[0]) == expected


TRIPS_OF_XLA = {
    "KnownSmallTripCount": [10],
    "KnownLargeTripCount": [1_000_000],
    "NonZeroTupleIndex": [10],
    "InductionVarForwardedNonZeroInit": [5],
    "InductionVarNonZeroTupleIndexForwarded": [7],
    "OverwritesPrePopulatedBackendConfig": [99],
}


@given.needs_cases
@pytest.mark.parametrize("name", TRIPS_OF_XLA)
def test_loops_of_xla_tests(name: str) -> None:
    (case,) = (c for c in given.modules_of_xla() if c["id"] == f"TripCountAnnotatorTest.{name}")
    assert trips(hlo.parser.parse(case["module"])[0]) == TRIPS_OF_XLA[name]
