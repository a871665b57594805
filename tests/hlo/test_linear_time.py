"""Hostile texts take linear time: all analyses of collectives, and the count of work."""

from __future__ import annotations

import pytest

from tests.hlo import given
from tests.hlo.test_hostile_text import read
from tests.hlo.test_work import read as count_work

# A backtracking pattern would not finish on these within the time limit of the tests.
LENGTH = 200_000
LONG = {
    "quotes": "HloModule m\nENTRY e {\n a = f32[] add(" + '"' * LENGTH,
    "backslashes": "HloModule m, a=" + '\\"' * LENGTH,
    "quotes in comments": '//"\n' + '"\\' * LENGTH,
    "comments that do not end": "/*" * LENGTH,
    "comment ends": "*/" * LENGTH,
    "open brackets": "HloModule m, x=" + "(" * LENGTH,
    "open braces": "HloModule m\ne {" + "{" * LENGTH,
    "spaces": "HloModule m" + " " * LENGTH + "x",
    "lines": "\n" * LENGTH + "x",
    "one name": "a" * LENGTH,
    "meshes": "HloModule m, a=mesh" + "[]" * LENGTH + "x{",
    "equals signs": "e {\n" + "a = " * LENGTH,
    "attributes": "e {\na = f32[] add(b)" + ", k=v" * LENGTH,
    "commas": "e {\na = f32[] add(b)" + "," * LENGTH,
    "groups": "e {\na=f32[2] all-reduce(a), replica_groups={" + "{0}," * LENGTH + "{1}}\n}",
    "separators": "// -----\n" * LENGTH,
    "headers": "HloModule m\n" * (LENGTH // 10),
    "table rows": "HloModule m\nStackFrames\n" + "1 {a=b}\n" * LENGTH,
    "strings": "HloModule m, a=" + '"x"' * LENGTH,
    "a long tuple": "e { a = (" + "f32[2]," * LENGTH + ") parameter(0)\n c=f32[] all-reduce(a) }",
    "a deep tuple": "e { a = " + "(" * 1000 + ")" * 1000 + " parameter(0) }",
    "calls that double": given.chain(
        " p = f32[] parameter(0)\n a = f32[] call(p), to_apply=BEFORE\n"
        " b = f32[] call(p), to_apply=BEFORE\n r = f32[] all-reduce(p)"
    ),
}
# Programs in which an instruction, a computation or an operand has very many users.
FAN = 20_000
LONG_WORK = {
    **LONG,
    "uses of a long tuple": "e {\n p = ("
    + "f32[2]," * FAN
    + ") parameter(0)\n"
    + "".join(f"c{n} = f32[2] negate(p)\n" for n in range(FAN))
    + "}",
    "fusions of one long computation": "f {\n p = f32[2] parameter(0)\n"
    + "".join(f"c{n} = f32[1] slice(p)\n" for n in range(FAN))
    + "}\nENTRY e {\n p = f32[2] parameter(0)\n"
    + "".join(f"c{n} = f32[1] fusion(p), calls=f\n" for n in range(FAN))
    + "}",
    "parameters of one name": "f {\n"
    + "p = f32[2] parameter(0)\n s = f32[1] slice(p)\n" * FAN
    + "}\nENTRY e {\n p = f32[2] parameter(0)\n c = f32[1] fusion(p), calls=f\n}",
    "bitcasts of bitcasts": "f {\n p = f32[2] parameter(0)\n b0 = f32[2] bitcast(p)\n"
    + "".join(f"b{n} = f32[2] bitcast(b{n - 1})\n" for n in range(1, FAN))
    + f"s = f32[1] slice(b{FAN - 1})\n}}\nENTRY e {{\n p = f32[2] parameter(0)\n"
    + " c = f32[1] fusion(p), calls=f\n}",
    "results of one update": "f {\n p = f32[2] parameter(0)\n d0 = f32[2] dynamic-update-slice(p, p, p)\n"
    + "".join(f"d{n} = f32[2] dynamic-update-slice(d{n - 1}, p, p)\n" for n in range(1, FAN))
    + f"ROOT t = f32[2] tuple({f'd{FAN - 1}, ' * FAN}p)\n}}\n"
    + "ENTRY e {\n p = f32[2] parameter(0)\n c = f32[2] fusion(p), calls=f\n}",
    "one operand many times": "f {\n p = f32[2] parameter(0)\n s = f32[1] slice(p)\n"
    + f"b = f32[2] bitcast({'p, ' * FAN}p)\n}}\n"
    + "ENTRY e {\n p = f32[2] parameter(0)\n c = f32[1] fusion(p), calls=f\n}",
    "one array of many dimensions": f"e {{\n p = f32[{'9,' * FAN}9] parameter(0)\n"
    + "n = f32[2] dot(p, p)\n" * FAN
    + "}",
    "long convolutions": "e {\n p = f32[1,9999999,1] parameter(0)\n"
    + "".join(
        f"c{n} = f32[1,{9_999_999 - n},1] convolution(p, p), window={{size=9999999 stride=3 pad={n}_{n}}}"
        ", dim_labels=b0f_0io->b0f\n"
        for n in range(1000)
    )
    + "}",
    "reductions of reductions": given.chain(
        " p = f32[] parameter(0)\n r = f32[9] reduce(p, p), to_apply=BEFORE\n"
        " s = f32[9] map(p), to_apply=BEFORE"
    ),
    "loops that nest": given.chain(
        " p = f32[] parameter(0)\n n = f32[] negate(p)\n r = f32[] while(p), body=BEFORE, "
        'condition=BEFORE, backend_config={"known_trip_count":{"n":"999999999999999999"}}'
    ),
}


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("name", LONG)
def test_collectives_of_hostile_text(name: str) -> None:
    read(LONG[name])


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("name", LONG_WORK)
def test_work_of_hostile_text(name: str) -> None:
    count_work(LONG_WORK[name])
