"""Reasons for a second compile of a function, from records of its arguments."""

from __future__ import annotations

from typing import Any

from inspector.core.program_run import Reason
from inspector.service.program_run.recompilation import reasons


def meta(*inputs: dict[str, Any], static: Any = None, new: bool = False) -> dict[str, Any]:
    return {"inputs": list(inputs), "static": static or {}, "new_function": new}


def value(name: str, shape: tuple[int, ...] = (8,), **changes: Any) -> dict[str, Any]:
    plain = {
        "name": name,
        "shape": list(shape),
        "dtype": "float32",
        "weak": False,
        "sharding": "P()",
    }
    return plain | changes


X = meta(value("x"), value("y"), static={"n": ("1", 1)})


def test_each_difference_is_a_reason() -> None:
    assert reasons([X]) == ()
    assert reasons([X, meta(value("x", (4,)), value("y"), static=X["static"])]) == (
        Reason("shape", "x", "[8]", "[4]"),
    )
    other = meta(value("x", dtype="int8", weak=True), value("y", sharding="P('a')"), static=X["static"])
    assert {(reason.kind, reason.argument) for reason in reasons([X, other])} == {
        ("dtype", "x"),
        ("weak type", "x"),
        ("sharding", "y"),
    }
    assert reasons([X, X | {"static": {"n": ("2", 2)}}]) == (Reason("static", "n", "1", "2"),)
    fewer = meta(value("x"), static=X["static"])
    assert reasons([X, fewer]) == (Reason("argument", "y", before="float32[8]"),)
    assert reasons([fewer, X]) == (Reason("argument", "y", after="float32[8]"),)


def test_equal_arguments_leave_the_function_or_nothing() -> None:
    assert reasons([X, X | {"new_function": True}]) == (Reason("function"),)
    assert reasons([X, X]) == (Reason("unknown"),)


def test_the_most_similar_compile_is_compared() -> None:
    far = meta(value("x", (2,)), value("y", (2,)), static=X["static"])
    assert reasons([X, far, meta(value("x"), value("y", (3,)), static=X["static"])]) == (
        Reason("shape", "y", "[8]", "[3]"),
    )
