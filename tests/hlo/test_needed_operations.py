"""The operation that the flow of data proves to need a collective, whatever the names of instructions are."""

import pytest

from inspector import hlo

_HEAD = """HloModule m, num_partitions=2
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
most { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] maximum(a, b) }
product { p = f32[8,8] parameter(0) ROOT d = f32[8,8] dot(p, p), lhs_contracting_dims={0} }
doubled { p = f32[8,8] parameter(0) ROOT d = f32[8,8] add(p, p), metadata={op_name="jit(f)/mul"} }
ENTRY main {
  x = f32[8,8] parameter(0)
  i = s32[8] parameter(1)
  zero = f32[] constant(0)
  none = f32[8,8] broadcast(zero), dimensions={}
  here = pred[8,8] compare(x, none), direction=GT
"""
_SUM = "replica_groups={{0,1}}, to_apply=sum"


def operations(*lines: str) -> list[str | None]:
    text = (
        _HEAD.replace(" b =", "\n b =").replace(" ROOT", "\n ROOT").replace("{ ", "{\n ").replace(" }", "\n}")
    )
    (module,) = hlo.parser.parse(text + "\n".join(lines) + "\n}")
    (collective,) = hlo.collectives.collectives(module)
    return [part.operation for part in collective.parts or (collective,)]


@pytest.mark.parametrize(
    ("made", "applied", "operation"),
    [
        ("v = f32[8] reduce(x, zero), dimensions={0}, to_apply=sum", "sum", "reduce_sum"),
        ("v = f32[8] reduce(x, zero), dimensions={0}, to_apply=most", "most", "reduce_max"),
        ("v = f32[8] reduce(x, zero), dimensions={0}, to_apply=most", "sum", None),
        ("v = f32[8,8] fusion(x), kind=kCustom, calls=product", "sum", "dot"),
        ("v = f32[8,8] fusion(x), kind=kLoop, calls=doubled", "sum", None),
        ("g = f32[8,8] gather(x, i)\n v = f32[8,8] select(here, g, none)", "sum", "gather"),
        ("v = f32[8,8] gather(x, i)", "sum", None),
        ("v = f32[8,8] scatter(none, i, x), to_apply=sum", "sum", "scatter"),
        (
            "r = f32[8] reduce(x, zero), dimensions={0}, to_apply=sum\n v = f32[8] negate(r)",
            "sum",
            "reduce_sum",
        ),
        ("d = f32[8,8] dot(x, x)\n v = f32[8,8] add(d, d)", "sum", "dot"),
        ("d = f32[8,8] dot(x, x)\n v = f32[8,8] add(d, x)", "sum", None),
        ("d = f32[8,8] dot(x, x)\n v = f32[8,8] exponential(d)", "sum", None),
    ],
)
def test_a_reduction_is_of_what_makes_its_parts(made: str, applied: str, operation: str | None) -> None:
    named = ', metadata={op_name="jit(f)/neg"}'
    reduction = f"r = f32[8,8] all-reduce(v), replica_groups={{{{0,1}}}}, to_apply={applied}{named}"
    assert operations(made + named, f"ROOT {reduction}".replace("r = ", "s = ")) == [operation]


@pytest.mark.parametrize(
    ("reader", "operation"),
    [
        ('ROOT d = f32[16,16] dot(g, g), metadata={op_name="jit(f)/dot_general"}', "dot_general"),
        ('ROOT d = f32[16,16] dot(g, g), metadata={op_name="jit(f)/reduce_sum"}', "dot"),
        ('ROOT d = f32[16,8] add(g, g), metadata={op_name="jit(f)/neg"}', "neg"),
        (
            'ROOT d = f32[16,8] add(g, g), metadata={op_name="jit(f)/add"}',
            None,
        ),  # it reads what another needs
        ('ROOT d = f32[16,8] copy(g), metadata={op_name="jit(f)/neg"}', "return"),  # it becomes the result
        ('c = f32[8,16] transpose(g)\n ROOT d = f32[16] sort(c), metadata={op_name="jit(f)/sort"}', "sort"),
    ],
)
def test_what_is_gathered_is_for_what_reads_it(reader: str, operation: str | None) -> None:
    named = 'metadata={op_name="jit(f)/neg"}'
    gather = f"g = f32[16,8] all-gather(x), replica_groups={{{{0,1}}}}, dimensions={{0}}, {named}"
    assert operations(gather, reader) == [operation]


def test_each_part_of_a_combined_reduction_has_its_own() -> None:
    lines = (
        "a = f32[8,8] dot(x, x)",
        "b = f32[8] reduce(x, zero), dimensions={0}, to_apply=sum",
        f"ROOT s = (f32[8,8], f32[8]) all-reduce(a, b), {_SUM}",
    )
    assert operations(*lines) == ["dot", "reduce_sum"]
