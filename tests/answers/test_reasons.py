"""Why a collective exists: the operation that needs it, on both sides of each sentence."""

from __future__ import annotations

import functools
import re
from dataclasses import replace
from typing import Literal

import jax
import jax.numpy as jnp
import pytest

from inspector.answers.array import placed
from inspector.answers.collectives import cause, each
from inspector.answers.reasons import of_parts, shared
from inspector.recording.capture import capture
from inspector.records.snapshot import (
    Array,
    Collective,
    CollectivePart,
    Conflict,
    ConflictSide,
    Origin,
    Program,
    ProgramArray,
    Requester,
    Snapshot,
    Source,
    Spec,
)

ONE = Collective(
    "all-reduce", False, "all-reduce.1", "main", 1, False, ("data",), 2, 4, 64, 64,
    op_name="jit(step)/dot_general", operation="dot_general",
)  # fmt: skip


def reason(program: Program, collective: Collective) -> str | None:
    """Return the reason of all parts of a collective; None if they have several."""
    ((why, *_), *others) = of_parts(program, collective)
    return None if others else why


@pytest.mark.parametrize(
    ("op", "primitive", "said"),
    [
        ("all-reduce", "dot_general", "partial sum"),
        ("reduce-scatter", "dot_general", "keeps its part"),
        ("all-reduce", "gather", "zeros"),
        ("all-reduce", "scatter-add", "updates"),
        ("all-reduce", "reduce_max", "largest value"),
        ("all-reduce", "psum", "The code calls"),
        ("collective-permute", "roll", "from some devices to others"),
    ],
)
def test_the_operation_says_why(op: str, primitive: str, said: str) -> None:
    collective = replace(ONE, op=op, op_name=f"jit(step)/{primitive}", operation=primitive)
    result = reason(Program("step", collectives=(collective,)), collective)
    assert result is not None and said in result and "data" in result
    assert primitive in result


def test_a_sum_in_the_condition_of_a_loop_joins_the_devices() -> None:
    collective = replace(ONE, op_name="jit(solve)/while/cond/reduce_or", use="condition")
    result = reason(Program("solve", collectives=(collective,)), collective)
    assert result is not None and "condition of a loop" in result and "data" in result


@pytest.mark.parametrize(
    ("requested_by", "call", "said"),
    [
        ("code", "pmean", "The code calls pmean"),
        # Such as a rule of `jax.custom_gradient` that is not found in the code.
        ("autodiff", None, "Autodiff adds psum"),
        ("autodiff", "", "Autodiff adds psum"),
        ("autodiff", "all_gather", "transpose of the code's all_gather"),
        (None, "", "or autodiff adds it"),
        (None, None, "or autodiff adds it"),
    ],
)
def test_who_asks_for_a_collective_of_the_backward_pass(
    requested_by: Requester | None, call: str | None, said: str
) -> None:
    collective = replace(
        ONE,
        op_name="jit(step)/transpose(jvp())/shard_map/psum",
        requested_by=requested_by,
        call=call,
    )
    result = reason(Program("step", collectives=(collective,)), collective)
    assert result is not None and said in result and "data" in result
    assert (call == "pmean") == ("The code calls pmean" in result)


@pytest.mark.parametrize("function", ["psum_scatter", "all_gather", "pswapaxes", "pmean", "pmax"])
def test_a_call_without_its_source_has_the_name_of_the_function(function: str) -> None:
    """A primitive of JAX can have another name than its function, and several functions."""
    arguments = {"axis_name": "x", "axis": 0} if function == "pswapaxes" else {"axis_name": "x"}
    called = functools.partial(getattr(jax.lax, function), **arguments)
    jaxpr = jax.make_jaxpr(called, axis_env=[("x", 2)])(jax.ShapeDtypeStruct((2,), "float32"))
    primitive = jaxpr.eqns[0].primitive.name
    collective = replace(ONE, op_name=f"jit(f)/shard_map/{primitive}", requested_by="code", call=None)
    said = reason(Program("f", collectives=(collective,)), collective) or ""
    assert function in re.findall(r"\w+", said)


@pytest.mark.parametrize(("function", "named"), [("roll", False), ("concatenate", True)])
def test_an_operation_inside_of_a_function_of_jax_is_not_one_of_the_line(function: str, named: bool) -> None:
    """jnp.roll concatenates in a jitted function of its own, and JAX names it so."""
    calls = {"roll": lambda x: jnp.roll(x, 1), "concatenate": lambda x: jnp.concatenate([x[1:], x[:1]])}
    lowered = jax.jit(calls[function]).lower(jax.ShapeDtypeStruct((8,), "float32"))
    (name,) = {*re.findall(r'op_name="([^"]*/concatenate)"', lowered.compile().as_text())}
    collective = replace(ONE, op="collective-permute", op_name=name, operation="concatenate", source="a.py:4")
    said = reason(Program("f", collectives=(collective,)), collective) or ""
    assert ("concatenate" in said) == named and "sends values" in said


@pytest.mark.parametrize("op", ["collective-permute", "all-gather"])
def test_a_result_that_is_moved_is_no_operand(op: str) -> None:
    """What becomes a result, and a slice of an argument, are apart and named apart."""
    of = replace(ONE, op=op, op_name="jit(step)/transpose(jvp(M))/dot_general", arrays=("params/w",))
    gradient = replace(of, name="b", parts=(CollectivePart(64, (), ("params/w",)),))
    operand = replace(of, name="a", parts=(CollectivePart(64, ("params/w",), ()),))
    forward = replace(gradient, name="c", op_name="jit(step)/jvp(M)/dot_general")
    program = Program("step", collectives=(gradient, operand, forward))
    said = {row.collectives[0].name: row.reason for row in shared(program)}
    assert set(said) == {"a", "b"} and "parts of params/w" in str(said["a"])
    assert "what becomes params/w" in str(said["b"])


def test_a_reason_names_an_array_only_if_all_of_its_collectives_move_one() -> None:
    first = replace(ONE, op="all-gather", name="a", arrays=("x",))
    program = Program("f", collectives=(first, replace(first, name="b", arrays=())))
    (row,) = shared(program)
    assert len(row.collectives) == 2 and "of x" not in (row.reason or "")


def test_a_conflict_whose_specs_are_equal_explains_nothing() -> None:
    """Such as one along a part of a mesh axis."""
    side = ConflictSide("operand 0", (8,), "f32", (("data",),), (("data",),))
    collective = replace(ONE, op="all-gather")
    program = Program(
        "f", collectives=(collective,), conflicts=(Conflict("dot", (side,), (collective.name,)),)
    )
    assert "sharded as" not in (reason(program, collective) or "")


def test_a_gathered_operand_has_both_shardings() -> None:
    side = ConflictSide("operand 1", (8, 8), "f32", (("data",), None), (None, None))
    collective = replace(ONE, op="all-gather", arrays=("params/w",))
    program = Program(
        "step", collectives=(collective,), conflicts=(Conflict("dot_general", (side,), (collective.name,)),)
    )
    result = reason(program, collective)
    assert result is not None
    assert "params/w" in result and "P('data', None)" in result and "P(None, None)" in result
    # Another collective of the same operation is not explained by it.
    other = replace(ONE, name="all-reduce.2")
    assert "P(" not in (reason(program, other) or "")


def test_without_an_operation_or_axes_nothing_is_said() -> None:
    program = Program("step")
    assert reason(program, replace(ONE, operation=None)) is None
    assert reason(program, replace(ONE, mesh_axes=None)) is None
    parts = replace(ONE, mesh_axes=None, axis_parts=("data:(1)2",))
    assert "2 parts of data" in (reason(program, parts) or "")


def test_the_collectives_of_all_layers_are_one_row() -> None:
    layers = [
        replace(
            ONE,
            op="all-gather",
            name=f"gather.{layer}",
            arrays=(f"params/layer_{layer}/dense_0/w",),
        )
        for layer in range(3)
    ]
    alone = replace(ONE, name="sum")
    other = replace(ONE, op="all-gather", name="gather.9", mesh_axes=("model",), arrays=("params/b_7",))
    unexplained = replace(ONE, name="sum.2", operation=None)
    program = Program("step", collectives=(alone, *layers, other, unexplained))
    rows = {row.collectives: row for row in shared(program)}
    assert {member for members in rows for member in members} == {*program.collectives}
    assert sum(map(len, rows)) == len(program.collectives)
    assert "params/layer_*/dense_0/w " in (rows[tuple(layers)].reason or "")
    assert rows[(alone,)].reason == reason(program, alone)
    assert rows[(other,)].reason == reason(program, other)
    assert rows[(unexplained,)].reason is None
    sent = [row.sent or 0 for row in shared(program)]
    assert sent == sorted(sent, reverse=True) and sum(sent) == 64 * len(program.collectives)


def test_no_two_rows_have_the_same_sentence() -> None:
    made = replace(ONE, name="sum.2", parts=(CollectivePart(64, outputs=("step/output",)),))
    (row,) = shared(Program("step", collectives=(ONE, made)))
    assert [*row.collectives] == [ONE, made] and row.sent == 128


def test_a_star_in_a_path_is_no_number() -> None:
    paths = ("params/a*b", "params/a1b", "params/a2b")
    members = [replace(ONE, op="all-gather", name=path, arrays=(path,)) for path in paths]
    (row,) = shared(Program("step", collectives=tuple(members)))
    assert row.reason is not None and row.reason.count("params/a*b") == 2


def test_table_and_detail_name_the_same_conflict() -> None:
    side = ConflictSide("operand 0", (8, 8), "f32", (("data",), None), (None, None))
    conflicts = tuple(Conflict(name, (side,), (ONE.name,)) for name in ("add", "mul"))
    program = Program("step", collectives=(ONE,), conflicts=conflicts)
    (row,) = shared(program)
    assert row.reason == reason(program, ONE)


@pytest.mark.parametrize(
    ("outputs", "explained"),
    [(("params/w",), True), ((), False)],
)
def test_a_gather_without_a_name_makes_results(outputs, explained) -> None:
    collective = replace(
        ONE, op="all-gather", op_name=None, operation=None, mesh_axes=("x",), arrays=outputs,
        parts=(CollectivePart(8, (), outputs),),
    )  # fmt: skip
    program = Program("train_step", collectives=(collective,))
    assert (reason(program, collective) is not None) == explained


@pytest.mark.parametrize(("scope", "called"), [("shard_map/", True), ("", False)])
def test_what_the_code_combines_in_a_shard_map_is_its_own(scope: str, called: bool) -> None:
    """XLA names the parts of an all-reduce of `pmean` by their operands."""
    parts = (
        CollectivePart(32, (), (), f"jit(step)/{scope}transpose(jvp())/transpose", "a.py:8"),
        CollectivePart(32, (), (), f"jit(step)/{scope}transpose(jvp())/reduce_sum", "a.py:8"),
    )
    collective = replace(
        ONE, op_name=f"jit(step)/{scope}psum", source="a.py:13", requested_by="code", call="pmean",
        arrays=(), parts=parts,
    )  # fmt: skip
    program = Program("step", collectives=(collective,))
    said = [row.reason or "" for row in shared(program)]
    assert all(("pmean" in text) == called for text in said)
    assert ("pmean" in (reason(program, collective) or "")) == called


def test_a_combined_collective_has_the_reason_of_each_part() -> None:
    parts = (
        CollectivePart(48, (), (), "jit(step)/dot_general", "a.py:8", "dot_general"),
        CollectivePart(16, (), (), "jit(step)/reduce_sum", "a.py:9", "reduce_sum"),
    )
    collective = replace(ONE, arrays=(), parts=parts, operation=None)
    program = Program("step", collectives=(collective,))
    (first, largest, _), (second, smallest, _) = of_parts(program, collective)
    assert ("dot_general" in str(first), largest) == (True, 48)
    assert ("reduce_sum" in str(second), smallest) == (True, 16)
    snapshot = Snapshot(Source("cpu", "cpu", "2026-01-01"), None, None, (), (program,))
    section = str(cause(snapshot, program, collective))
    assert "dot_general" in section and "reduce_sum" in section
    assert {row.reason for row in shared(program)} == {first, second}
    assert all(str(why) in str(each(program, [collective])) for why in (first, second))
    alone = replace(collective, parts=parts[:1], operation="dot_general")
    assert [why for why, *_ in of_parts(program, alone)] == [reason(program, alone)]


@pytest.mark.parametrize(("requested_by", "sure"), [("code", True), (None, False)])
def test_a_primitive_without_its_function_can_be_of_autodiff(
    requested_by: Requester | None, sure: bool
) -> None:
    """XLA's partitioner keeps only the name of the primitive of a shard_map that it has inlined."""
    collective = replace(ONE, op_name="psum_invariant", requested_by=requested_by)
    said = reason(Program("step", collectives=(collective,)), collective) or ""
    assert ("The code calls" in said, "autodiff" in said) == (sure, not sure)
    assert reason(Program("step"), replace(ONE, op_name="weights", operation=None)) is None


def gather(*axes: str, **fields: object) -> Collective:
    name = "all-gather." + "".join(axes)
    return replace(ONE, op="all-gather", name=name, mesh_axes=axes, op_name="jit(f)/dot_general", **fields)


def test_each_collective_of_a_conflict_has_the_side_that_it_moves() -> None:
    """Two operands of a product are gathered along different mesh axes, and its result along a third."""
    sides = (
        ConflictSide("operand 0", (8, 8), "f32", (("data",), ("model",)), (("data",), None)),
        ConflictSide("operand 1", (8, 8), "f32", (("data",), ("model",)), (None, ("model",))),
        ConflictSide("result 0", (8, 8), "f32", (("data",), None), (("data",), ("expert",))),
    )
    parts = {axis: gather(axis) for axis in ("model", "data", "expert")}
    names = tuple(part.name for part in parts.values())
    program = Program("f", collectives=(*parts.values(),), conflicts=(Conflict("dot_general", sides, names),))
    changes = {axis: (reason(program, part) or "").partition(": ")[2] for axis, part in parts.items()}
    assert changes == {
        "model": "P('data', 'model') becomes P('data', None).",
        "data": "P('data', 'model') becomes P(None, 'model').",
        "expert": "P('data', 'expert') becomes P('data', None).",
    }


def test_one_of_two_sides_along_one_axis_is_not_known() -> None:
    sides = (
        ConflictSide("operand 0", (8, 8), "f32", (("data",), None), (None, None)),
        ConflictSide("operand 1", (8, 8), "f32", (None, ("data",)), (None, None)),
    )
    collective = gather("data")
    program = Program("f", collectives=(collective,), conflicts=(Conflict("dot", sides, (collective.name,)),))
    assert "P(" not in (reason(program, collective) or "P(")


def test_a_gather_that_the_code_calls_is_no_conflict() -> None:
    side = ConflictSide("result 0", (8, 8), "f32", (None, None), (("expert",), None))
    called = replace(
        gather("expert", requested_by="code", call="all_gather"), op_name="jit(f)/shard_map/all_gather"
    )
    program = Program(
        "f", collectives=(called,), conflicts=(Conflict("all_gather", (side,), (called.name,)),)
    )
    assert reason(program, called) == "The code calls all_gather over expert."


@pytest.mark.parametrize("inputs", [(), ("params/w",)])
@pytest.mark.parametrize("primitive", ["squeeze", "neg", "reshard", "reduce_sum", "dot_general"])
def test_a_name_without_a_proof_is_no_reason(primitive: str, inputs: tuple[str, ...]) -> None:
    """Such as that of a value that is reshaped after a sum, or of weights that are gathered as a sum."""
    collective = replace(
        ONE, op_name=f"jit(step)/{primitive}", operation=None, source="a.py:3", arrays=inputs,
        parts=(CollectivePart(64, inputs, ()),),
    )  # fmt: skip
    said = reason(Program("step", collectives=(collective,)), collective) or ""
    assert primitive not in said and ("params/w" in said) == bool(inputs)
    assert not any(word in said for word in ("reduces", "sums", "partial", "dimension", "each device has"))


def test_a_conflict_of_another_operation_of_the_line_is_not_named() -> None:
    side = ConflictSide("operand 0", (8,), "f32", (("data",),), (None,))
    collective = replace(gather("data"), op_name="jit(f)/cumsum", operation="cumsum")
    conflict = Conflict("gather", (side,), (collective.name,), "jit(f)/gather")
    program = Program("f", collectives=(collective,), conflicts=(conflict,))
    said = reason(program, collective) or ""
    assert "cumsum" in said and "gather," not in said and "P(" not in said


def constrained(place: str, uses: Spec) -> Program:
    """A product whose operand 1 is sharded over model, with the constraint of its result in a line."""
    result = ConflictSide("result 0", (8, 8), "f32", uses, uses, (Origin("data", place),))
    sides = (
        ConflictSide("operand 0", (8, 8), "f32", (("data",), None), (("data",), None), ()),
        ConflictSide(
            "operand 1", (8, 8), "f32", (None, ("model",)), (None, None), (Origin("model", "head"),)
        ),
        result,
    )
    collective = replace(gather("model"), source="a.py:45")
    conflict = Conflict("dot_general", sides, (collective.name,), "jit(f)/dot_general", "a.py:45")
    return Program("f", collectives=(collective,), conflicts=(conflict,))


@pytest.mark.parametrize(
    ("place", "uses", "asks"),
    [
        ("constraint a.py:46", (("data",), None), True),
        ("x", (("data",), None), False),
        ("constraint a.py:46", (("model",), None), False),  # another dimension needs the axis
    ],
)
def test_a_constraint_of_the_result_asks_for_a_gathered_operand(place: str, uses: Spec, asks: bool) -> None:
    program = constrained(place, uses)
    (row,) = shared(program)
    assert ("a.py:46" in (row.reason or "")) == asks == ("dot_general" not in (row.reason or ""))


@pytest.mark.parametrize("path", ["f/output/a", "f/output/b", None])
def test_out_shardings_ask_for_what_only_results_read(path: str | None) -> None:
    """The sharding of one of two results is given to jit."""
    arrays = tuple(
        ProgramArray("output", f"f/output/{name}", given, ((),), None)
        for name, given in (("a", ((),)), ("b", None))
    )
    parts = (CollectivePart(64, (), (path,) if path else ()),)
    gathered = replace(gather("data"), op_name=None, operation="return", arrays=(), parts=parts)
    said = reason(Program("f", collectives=(gathered,), shardings=arrays), gathered) or ""
    assert ("out_shardings" in said) == (path == "f/output/a")
    read = replace(gathered, operation=None)
    assert "out_shardings" not in (reason(Program("f", collectives=(read,), shardings=arrays), read) or "")


@pytest.mark.parametrize("given", [((),), None])
@pytest.mark.parametrize(("role", "word"), [("output", "out_shardings"), ("input", "in_shardings")])
def test_the_code_gives_jit_a_sharding(
    role: Literal["input", "output"], word: str, given: Spec | None
) -> None:
    array = Array("y", "other", (8,), "float32", spec=((),))
    step = Program("f", shardings=(ProgramArray(role, "y", given, ((),), None),))
    source = Source("capture", None, "2026-01-01T00:00:00+00:00", {})
    said = str(placed(array, Snapshot(source, None, None, (array,), (step,))))
    assert (word in said) == (given is not None) == ("with this sharding" not in said)


@pytest.mark.parametrize("role", ["output", "input"])
def test_an_argument_like_a_live_array_can_be_another_object(role: Literal["input", "output"]) -> None:
    """One call takes the vector of the solver, a later one a host array with this name."""
    live = capture({"b": jnp.zeros(8)}).arrays[0]
    step = Program("cg", shardings=(ProgramArray(role, "b", None, live.spec, None),))
    source = Source("capture", None, "2026-01-01T00:00:00+00:00", {})
    said = [
        str(placed(array, Snapshot(source, None, None, (array,), (step,))))
        for array in (live, replace(live, facts=None))
    ]
    assert all("cg" in text for text in said)
    assert ["an argument" in text for text in said] == [role == "input", False]


def test_an_array_that_no_record_names_has_no_sentence_about_programs() -> None:
    """A program can return it under another path."""
    array = Array("images", "other", (8,), "float32", spec=((),))
    step = Program("f", shardings=(ProgramArray("output", "f/output", None, ((),), None),))
    source = Source("capture", None, "2026-01-01T00:00:00+00:00", {})
    (block,) = placed(array, Snapshot(source, None, None, (array,), (step,))).blocks
    assert str(block).count(".") == 1


@pytest.mark.parametrize("primitive", ["sharding_constraint", "reshard"])
def test_a_sharding_that_the_code_asks_for_names_its_line(primitive: str) -> None:
    collective = replace(gather("data"), op_name=f"jit(f)/{primitive}", operation=None, source="a.py:4")
    said = reason(Program("f", collectives=(collective,)), collective) or ""
    assert "a.py:4" in said and primitive.removeprefix("sharding_") in said
