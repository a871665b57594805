"""FLOPs and bytes of single instructions match XLA's cost analysis of the same text."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import pytest

from inspector import hlo
from inspector.hlo.work import work
from inspector.records.snapshot import Work

hlo_of_jaxlib = pytest.importorskip("jaxlib._hlo")
jaxlib = pytest.importorskip("jaxlib._jax")


def of_text(text: str) -> Work:
    (module,) = hlo.parser.parse(text)
    return work(module)


def of_xla(text: str) -> dict[str, Any]:
    """Return XLA's cost analysis of a text; raise if this version cannot parse it."""
    module = hlo_of_jaxlib.hlo_module_from_text(text)
    return jaxlib.hlo_module_cost_analysis(jax.devices()[0].client, module)


# All operations on one or two arrays of floats or integers, in any supported version of XLA.
UNARY = (
    "abs", "acos", "acosh", "asin", "asinh", "atanh", "cbrt", "ceil", "convert", "copy", "cosh",
    "cosine", "count-leading-zeros", "erf", "exponential", "exponential-minus-one", "exp2",
    "floor", "log", "log2", "log-plus-one", "logistic", "negate", "not", "popcnt",
    "round-nearest-afz", "round-nearest-even", "rsqrt", "sign", "sine", "sinh", "sqrt", "tan",
    "tanh",
)  # fmt: skip
BINARY = (
    "add", "and", "atan2", "divide", "maximum", "minimum", "mulhi", "multiply", "or", "power",
    "remainder", "shift-left", "shift-right-arithmetic", "shift-right-logical", "subtract", "xor",
)  # fmt: skip


def test_elementwise_flops_match_xla() -> None:
    compared = set()
    for opcode, dtype in itertools.product((*UNARY, *BINARY), ("f32", "s32")):
        operands = "a" if opcode in UNARY else "a, b"
        text = (
            f"HloModule m\nENTRY e {{\n a = {dtype}[8] parameter(0)\n b = {dtype}[8] parameter(1)\n"
            f" ROOT r = {dtype}[8] {opcode}({operands})\n}}\n"
        )
        try:
            theirs = of_xla(text)
        except (RuntimeError, ValueError):
            continue  # not for this type or version
        assert of_text(text).flops == theirs.get("flops", 0), (opcode, dtype)
        compared.add(opcode)
    assert len(compared) > len(UNARY) + len(BINARY) - 4


@pytest.mark.parametrize(
    "instruction",
    [
        "f32[3,8,8] cholesky(a), lower=true",
        "f32[3,8,5] triangular-solve(a, b), left_side=true, lower=true, transpose_a=NO_TRANSPOSE",
    ],
)
def test_triangular_operand_counts_half(instruction: str) -> None:
    text = (
        "HloModule m\nENTRY e {\n a = f32[3,8,8] parameter(0)\n b = f32[3,8,5] parameter(1)\n"
        f" ROOT r = {instruction}\n}}\n"
    )
    assert of_text(text).bytes_accessed == of_xla(text)["bytes accessed"]


def test_scan_operation() -> None:
    text = """HloModule m
f {
  x = f32[4] parameter(0)
  c = f32[4] parameter(1)
  s = f32[4] add(x, c)
  ROOT t = (f32[4], f32[4]) tuple(s, s)
}
ENTRY e {
  a = f32[SHAPE] parameter(0)
  c = f32[4] parameter(1)
  ROOT r = (f32[SHAPE], f32[4]) scan(a, c), dimensions={DIMENSION}, num_carries=1, to_apply=f
}
"""
    for shape, dimension in (("8,4", "0"), ("4,8", "1")):
        written = text.replace("SHAPE", shape).replace("DIMENSION", dimension)
        assert of_text(written).flops == 8 * 4
    assert of_text(written.replace("[4,8]", "[4,?]")).flops is None
