"""Names and causes in the words of the program: who asks for a collective, lines, attributes, variables."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from inspector import audit
from inspector.answers import summary
from inspector.jobs.program_run import folder_snapshot
from inspector.prediction.memory import breakdown
from inspector.records import program_run
from inspector.records.snapshot import Collective
from inspector.sharding.sharding_text import array_spec_text
from tests.answers.test_reasons import reason
from tests.jobs.program_run.test_program_run import RUN, call

pytestmark = [pytest.mark.close_to_jax]

PROGRAM = """\
import functools, numpy, sys, types
import jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
smap = functools.partial(jax.shard_map, mesh=mesh)

def put(shape, *spec):
    return jax.device_put(jnp.ones(shape), NamedSharding(mesh, P(*spec)))

@jax.tree_util.register_pytree_node_class
class Layer:
    def __init__(self, kernel, bias):
        self.kernel, self.bias = kernel, bias
    def tree_flatten(self):
        return (self.kernel, self.bias), None
    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)

class Trainer:
    def __init__(self):
        self.table = put((64, 8), "model")
        self._layer = Layer(put((8, 16), None, "model"), put((16,)))

class Variable:
    def __init__(self, path, value):
        self._path, self._value, self._trainable = path, value, True

keras = types.ModuleType("keras.src.backend.common.variables")
keras.Variable, Variable.__module__ = Variable, keras.__name__
sys.modules[keras.__name__] = keras

@jax.custom_vjp
def copied(x):
    return x

copied.defvjp(lambda x: (x, None), lambda _, g: (jax.lax.psum(g, "data"),))
x, w = put((16, 8), "data"), put((8, 8))

@jax.jit
def mean(x):
    return smap(lambda x: jax.lax.pmean(jnp.sum(x), "data"), in_specs=P("data"), out_specs=P())(x)

@jax.jit
def sums(x, w):
    f = smap(lambda x, w: jnp.tanh(x @ w), in_specs=(P("data"), P()), out_specs=P("data"))
    return jax.grad(lambda w: jnp.sum(f(x, w)))(w)

@jax.jit
def scatters(x, w):
    def f(x, w):
        return jnp.sum(jnp.tanh(x @ jax.lax.all_gather(w, "data", tiled=True))).reshape(1)
    f = smap(f, in_specs=(P("data"), P("data")), out_specs=P("data"))
    return jax.grad(lambda w: jnp.sum(f(x, w)))(w)

@jax.jit
def rules(x, w):
    def f(x, w):
        return jnp.sum(x @ copied(w)).reshape(1)
    f = smap(f, in_specs=(P("data"), P()), out_specs=P("data"), check_vma=False)
    return jax.grad(lambda w: jnp.sum(f(x, w)))(w)

@jax.jit
def apply(layer, x):
    return jnp.sum(x @ layer.kernel + layer.bias, axis=0)

double = jax.jit(lambda x: x * 2)
triple = jax.jit(lambda x: x * 3)
trainer = Trainer()
kept = [mean(x), sums(x, w), scatters(x, w), rules(x, w), double(x), triple(x)]
variable = (lambda value: Variable("dense/kernel", value))(triple(apply(trainer._layer, x)))
params = {"up": put((8, 16), None, "model"), "down": put((16, 8), "model")}

@jax.jit
def gradients(params, x):
    return jax.grad(lambda p: jnp.sum(jnp.tanh(x @ p["up"]) @ p["down"]))(params)

gradient = gradients(params, x)
table = numpy.arange(2**21, dtype="float32").reshape(2048, 1024)

@jax.jit
def looks_up(rows):
    return rows @ table

@jax.jit
def alone(rows):
    return rows.sum()

found = looks_up(put((8, 2048), "data"))
total = alone(jnp.ones((4, 4)))
big = put((64, 32), "data")
same = jax.make_mesh((2, 4), ("i", "j"), axis_types=(AxisType.Auto,) * 2)
again = jax.device_put(big, NamedSharding(same, P("i")))
"""


def line(text: str) -> str:
    return f"words.py:{PROGRAM[: PROGRAM.index(text)].count(chr(10)) + 1}"


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("words")
    (folder / "words.py").write_text(PROGRAM)
    process = call(folder, *RUN, "words.py")
    assert process.returncode == 0, process.stderr
    return SimpleNamespace(
        run=program_run.read(folder / "recorded"),
        found=folder_snapshot.read(folder / "recorded"),
    )


def requested(words: Any, program: str, op: str) -> set[tuple[Any, ...]]:
    collectives: list[Collective] = words.found.program(program).collectives
    return {
        (collective.requested_by, collective.call, collective.source)
        for collective in collectives
        if collective.op == op
    }


def test_the_code_asks_for_a_collective(words: Any) -> None:
    assert requested(words, "mean", "all-reduce") == {("code", "pmean", line("jax.lax.pmean"))}


def test_autodiff_asks_for_a_collective_that_the_line_lacks(words: Any) -> None:
    asked = ("autodiff", "", line("jnp.tanh(x @ w)"))
    assert requested(words, "sums", "all-reduce") == {asked}
    program = words.found.program("sums")
    assert "the code has none here" in (reason(program, program.collectives[0]) or "")


def test_autodiff_transposes_a_collective_of_the_code(words: Any) -> None:
    assert requested(words, "scatters", "all-gather") >= {("code", "all_gather", line("jax.lax.all_gather"))}
    assert requested(words, "scatters", "reduce-scatter") == {
        ("autodiff", "all_gather", line("jax.lax.all_gather"))
    }


def test_a_derivative_rule_may_ask_for_a_collective(words: Any) -> None:
    assert (None, "", line("jnp.sum(x @ copied")) in requested(words, "rules", "all-reduce")


def test_programs_of_one_name_have_their_lines(words: Any) -> None:
    names = {record.name for record in words.run.programs if record.function == "<lambda>"}
    assert {f"<lambda> at {line('double =')}", f"<lambda> at {line('triple =')}"} <= names
    assert {record.called for record in words.run.programs if record.function == "mean"} == {line("kept =")}


def test_arrays_have_the_names_of_attributes_and_variables(words: Any) -> None:
    paths = {array.path for array in words.found.arrays}
    assert {"trainer/table", "layer/kernel", "layer/bias", "dense/kernel"} <= paths
    assert words.found.array("dense/kernel").group == "params"


def test_a_gradient_is_no_train_state(words: Any) -> None:
    assert {words.found.array(f"gradient/{name}").group for name in ("up", "down")} == {"gradient"}
    assert words.found.array("params/up").group == "params"
    repeated = [
        finding.message
        for finding in audit.audited(words.found).findings
        if finding.code == "state-repeated-over-axis"
    ]
    assert not any("train state" in message or "gathered" in message for message in repeated)
    labels = {fact.label for fact in summary.facts(words.found).facts}
    assert "Arrays" in labels and "Train state" not in labels


def test_constants_count_and_have_the_names_of_variables(words: Any) -> None:
    program = words.found.program("looks_up")
    (constant,) = program.large_constants
    assert (constant.variable, constant.bytes) == ("table", 8 * 2**20)
    needed = breakdown(words.found, program)
    assert needed is not None and needed.constants == constant.bytes
    assert needed.needed is not None and needed.needed > constant.bytes
    assert max(dict(needed.parts).values()) == dict(needed.parts)["constants"]


def test_a_program_on_one_device_is_on_no_mesh(words: Any) -> None:
    program = words.found.program("alone")
    mesh = words.found.mesh_of(program)
    assert (program.device, mesh.axes, mesh.devices) == (0, (), (0,))
    assert array_spec_text(words.found.array("total")) == "device 0"


def test_arrays_with_one_memory_count_once(words: Any) -> None:
    paths = {array.path for array in words.found.arrays}
    assert "big" in paths and "again" not in paths
