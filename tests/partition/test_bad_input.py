"""Operations that Shardy does not know are handled, or refused with a sentence that names them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec
from jaxlib.mlir import ir

from inspector import layout as layouts
from inspector.compiled import program_text
from inspector.layout.plan import NOT_PARTITIONED
from inspector.partition import numbers, partition_layout, shardy, template
from inspector.partition.xla_form import xla_form
from inspector.records.snapshot import Collective, Mesh, MeshAxis
from inspector.text.errors import InvalidInput
from inspector.tracing.mlir import xla_partitioner

SIZES = {"data": 2, "model": 4}
ABSTRACT = AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
MESH = Mesh(tuple(MeshAxis(name, size) for name, size in SIZES.items()), tuple(range(8)))
BOTH = PartitionSpec("data", "model")


def lowered(function):
    """The module of a function of one matrix of 8 × 16, which is sharded over both mesh axes."""
    argument = jax.ShapeDtypeStruct((8, 16), jnp.float32, sharding=NamedSharding(ABSTRACT, BOTH))
    with jax.sharding.use_abstract_mesh(ABSTRACT):
        traced = jax.jit(function).trace(argument)
        return traced.lower(lowering_platforms=("cpu",)).compiler_ir("stablehlo")


def collectives(module) -> tuple[Collective, ...]:
    """The collectives of a module after XLA's partitioner."""
    with module.context, ir.Location.unknown():
        copy = numbers.numbered(module)
        shardy.inline_calls(copy)
        text = xla_partitioner.partitioned(numbers.for_partitioner(copy), MESH.size)
    return program_text.read(text, MESH).collectives or ()


def sent(module) -> Counter:
    """Payload bytes by operation and mesh axes."""
    counter: Counter = Counter()
    for collective in collectives(module):
        counter[collective.op, collective.mesh_axes] += collective.payload_bytes or 0
    return counter


def test_a_shard_map_keeps_its_own_collectives() -> None:
    def body(x):
        return jax.lax.psum(x, "model")

    def function(x):
        mapped = jax.shard_map(body, mesh=ABSTRACT, in_specs=BOTH, out_specs=PartitionSpec("data", None))
        return mapped(x)

    # A shard of 4 × 4 floats is summed over the model axis.
    assert sent(xla_form(lowered(function))) == {("all-reduce", ("model",)): 64}


def test_the_operand_of_an_unknown_custom_call_is_gathered() -> None:
    result = jax.ShapeDtypeStruct((8, 16), jnp.float32)

    def function(x):
        return jax.ffi.ffi_call("not_registered", result)(x) + 1

    found = sent(xla_form(lowered(function)))
    assert {op for op, _ in found} == {"all-gather"} and sum(found.values()) >= 8 * 16 * 4


def test_a_custom_call_with_several_results_is_propagated() -> None:
    # JAX computes eigenvalues with a custom call whose result is a tuple in HLO.
    assert ("all-reduce", ("model",)) in sent(xla_form(lowered(lambda x: jnp.linalg.eigh(x @ x.T)[0])))


def test_a_loop_without_a_known_trip_count_has_unknown_executions() -> None:
    def function(x):
        return jax.lax.while_loop(lambda c: jnp.sum(c) < 10, lambda c: c @ jnp.ones((16, 16)), x)

    result = collectives(xla_form(lowered(function)))
    assert result and {collective.executions for collective in result} == {None}


def parsed(text: str):
    module = lowered(lambda x: x + 1)
    with module.context, ir.Location.unknown():
        return ir.Module.parse(text)


# A tuple, which Shardy refuses.
TUPLES = """
    sdy.mesh @mesh = <["data"=2, "model"=4]>
    func.func public @main(%0: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}]>})
        -> tensor<8xf32> {
      %1 = "stablehlo.custom_call"(%0) {call_target_name = "pair"}
          : (tensor<8xf32>) -> tuple<tensor<8xf32>, tensor<8xf32>>
      %2 = "stablehlo.get_tuple_element"(%1) {index = 0 : i32}
          : (tuple<tensor<8xf32>, tensor<8xf32>>) -> tensor<8xf32>
      return %2 : tensor<8xf32>
    }"""


def test_a_module_that_shardy_refuses_is_a_sentence_with_the_operation() -> None:
    with pytest.raises(InvalidInput) as error:
        shardy.propagate(parsed(TUPLES), origins=False)
    assert "tuple" in str(error.value) and "custom_call pair" in str(error.value)
    assert "\n" not in str(error.value)


def test_the_other_programs_appear_if_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = layouts.parse({"mesh": "2x4", "depth": "64"}).unwrap()
    result = template.template_of(layout)
    broken = [
        replace(program, module=parsed(TUPLES)) if program.name == "apply" else program
        for program in result.programs
    ]
    monkeypatch.setattr(partition_layout, "template_of", lambda *_: replace(result, programs=tuple(broken)))
    answer = partition_layout.partitioned_programs(layout)
    assert [program.name for program in answer.programs] == ["init", "train_step"]
    (note,) = answer.findings
    assert note.code == NOT_PARTITIONED and note.message.startswith("apply: ")


def test_a_program_without_a_mesh_is_a_sentence() -> None:
    text = "func.func public @main(%0: tensor<8xf32>) -> tensor<8xf32> { return %0 : tensor<8xf32> }"
    with pytest.raises(InvalidInput) as error:
        xla_form(parsed(text))
    assert "no mesh" in str(error.value)


def test_a_dynamic_shape_is_a_sentence_with_the_operation() -> None:
    text = """
    sdy.mesh @mesh = <["data"=2, "model"=4]>
    func.func public @main(%0: tensor<?x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"data"}]>})
        -> (tensor<?x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}) {
      %1 = stablehlo.add %0, %0 : tensor<?x16xf32>
      return %1 : tensor<?x16xf32>
    }"""
    with pytest.raises(InvalidInput) as error:
        shardy.propagate(xla_form(parsed(text)), origins=False)
    assert "tensor<?x16xf32>" in str(error.value) and "stablehlo.add" in str(error.value)


def test_an_argument_of_unknown_size_is_a_sentence() -> None:
    """Without an operation, Shardy accepts it. XLA would end the process: 3 does not divide the size."""
    text = """
    sdy.mesh @mesh = <["data"=8, "model"=3]>
    func.func public @main(%0: tensor<?x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"model"}, {}]>})
        -> tensor<?x16xf32> {
      return %0 : tensor<?x16xf32>
    }"""
    module = parsed(text)
    with pytest.raises(InvalidInput, match=r"tensor<\?x16xf32>"):
        xla_partitioner.partitioned(module, 24)


def test_a_program_with_a_callback_is_a_sentence() -> None:
    result = jax.ShapeDtypeStruct((8, 16), jnp.float32)

    def function(x):
        return jax.pure_callback(lambda a: a, result, x)

    sharding = NamedSharding(ABSTRACT, BOTH)
    signature = template.Signature("apply", function, {"x": (result, sharding)}, {"y": sharding})
    with jax.sharding.use_abstract_mesh(ABSTRACT), pytest.raises(InvalidInput) as error:
        template._lower(signature, logical=False, watched=False)
    assert str(error.value).startswith("JAX cannot lower apply without devices")
