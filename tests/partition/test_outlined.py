"""Arguments as operations: propagation gives what it gives for arguments, with memory that grows linearly."""

from __future__ import annotations

import random
import re
import subprocess
import sys

import pytest
from jax._src.interpreters import mlir as jax_mlir
from jaxlib.mlir import ir

from inspector import layout as layouts
from inspector.partition import outlined, shardy
from inspector.partition.partition_layout import partitioned_programs
from inspector.partition.xla_form import xla_form
from inspector.tracing.mlir.walk import operations
from tests.partition.test_partition_layout import CASES

AXES = {"data": 2, "model": 4}
NOTES = re.compile(r"(, )?sdy\.(propagation_edges|sharding_origins|sharding_origin_name) = ")
# A result without a sharding is replicated, too. Shardy of JAX 0.12 writes this for some of them.
REPLICATED = re.compile(r"sdy\.sharding = #sdy\.sharding<@mesh, \[\{\}, \{\}\]>")


def sharding(draw: random.Random) -> str:
    axes = [[], []]
    for axis in AXES:
        if draw.random() < 0.5:
            axes[draw.randrange(2)].append(f'"{axis}"')
    open_ends = ["?"] if draw.random() < 0.2 else []
    entries = ", ".join("{" + ", ".join([*one, *open_ends]) + "}" for one in axes)
    return f"#sdy.sharding<@mesh, [{entries}]>"


def program(seed: int) -> str:
    """Return a program of sums, products, transposes and constraints of arguments, some of them sharded."""
    draw = random.Random(seed)
    kind = "tensor<8x8xf32>"
    count = draw.randint(1, 6)
    values = [f"%a{number}" for number in range(count)]
    arguments = ", ".join(
        f"{value}: {kind}" + (f" {{sdy.sharding = {sharding(draw)}}}" if draw.random() < 0.7 else "")
        for value in values
    )
    lines = []
    for number in range(draw.randint(1, 10)):
        choice, other = draw.choice(values), draw.choice(values)
        lines.append(
            f"%v{number} = "
            + draw.choice(
                [
                    f"stablehlo.add {choice}, {other} : {kind}",
                    f"stablehlo.dot {choice}, {other} : ({kind}, {kind}) -> {kind}",
                    f"stablehlo.transpose {choice}, dims = [1, 0] : ({kind}) -> {kind}",
                    f"sdy.sharding_constraint {choice} <{sharding(draw).removeprefix('#sdy.sharding<')}"
                    f" : {kind}",
                ]
            )
        )
        values.append(f"%v{number}")
    results = [draw.choice(values) for _ in range(draw.randint(1, 4))]
    types = ", ".join(
        kind + (f" {{sdy.sharding = {sharding(draw)}}}" if draw.random() < 0.3 else "") for _ in results
    )
    sizes = ", ".join(f'"{name}"={size}' for name, size in AXES.items())
    body = "\n".join(lines)
    return f"""module @m {{
      sdy.mesh @mesh = <[{sizes}]>
      func.func public @main({arguments}) -> ({types}) {{
        {body}
        return {", ".join(results)} : {", ".join([kind] * len(results))}
      }}
    }}"""


def outcome(text: str, origins: bool) -> tuple[str, list[object]]:
    """Return the propagated module without notes, and the source of each mesh axis at each value."""
    with jax_mlir.make_ir_context(), ir.Location.unknown():
        propagated = shardy.propagate(xla_form(ir.Module.parse(text)), origins, export=True)
        sources: list[object] = []
        if origins:
            # Shardy numbers the constraints of arguments too, so others have higher numbers.
            names = sorted(propagated.constraints, key=lambda name: int(name.rpartition("_")[2]))
            for operation in propagated.history.operations:
                values = list(operation.results)
                if operation.name == "func.func":
                    values += operation.regions[0].blocks[0].arguments
                for value in values:
                    for axis in AXES:
                        source = propagated.history.find(value, axis)
                        if source is None:
                            sources.append(None)
                        elif source.source in names:
                            sources.append((names.index(source.source), source.steps))
                        else:
                            sources.append((source.source, source.steps))
        for operation in operations(propagated.module):
            for key in list(operation.attributes):
                name = key if isinstance(key, str) else key.name
                if NOTES.match(f"{name} = ") or name == "mhlo.number":
                    del operation.attributes[name]
                elif name in ("arg_attrs", "res_attrs"):
                    operation.attributes[name] = ir.ArrayAttr.get(
                        [
                            ir.DictAttr.get(
                                {
                                    each.name: each.attr
                                    for each in ir.DictAttr(attribute)
                                    if not NOTES.match(f"{each.name} = ")
                                    and not REPLICATED.fullmatch(f"{each.name} = {each.attr}")
                                }
                            )
                            for attribute in ir.ArrayAttr(operation.attributes[name])
                        ]
                    )
        return str(propagated.module), sources


@pytest.mark.nightly_but_first
@pytest.mark.parametrize("origins", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_random_programs_are_propagated_alike(seed, origins, monkeypatch):
    text = program(seed)
    plain = outcome(text, origins)
    monkeypatch.setattr(outlined, "FEW", 0)
    assert outcome(text, origins) == plain


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name", ["mlp, fsdp and tensor: the backward pass gathers again", "moe, explicit axes"]
)
def test_a_train_step_is_propagated_alike(name, monkeypatch):
    layout = layouts.parse(dict(CASES[name][0])).unwrap()
    plain = partitioned_programs(layout)
    monkeypatch.setattr(outlined, "FEW", 0)
    assert partitioned_programs(layout) == plain


GROWTH = """
import resource, sys
from inspector.partition import shardy
from inspector.partition.xla_form import xla_form
from jax._src.interpreters import mlir as jax_mlir
from jaxlib.mlir import ir

def module(count):
    kind = "tensor<8x8xf32>"
    arguments = ", ".join(
        f'%a{number}: {kind} {{sdy.sharding = #sdy.sharding<@mesh, [{{"x"}}, {{}}]>}}'
        for number in range(count)
    )
    body = "".join(f"%v{number} = stablehlo.abs %a{number} : {kind}\\n" for number in range(count))
    results = ", ".join(f"%v{number}" for number in range(count))
    kinds = ", ".join([kind] * count)
    return (
        f'module @m {{ sdy.mesh @mesh = <["x"=2]> func.func public @main({arguments}) -> ({kinds})'
        f"{{ {body} return {results} : {kinds} }} }}"
    )

for count in (500, int(sys.argv[1])):
    with jax_mlir.make_ir_context(), ir.Location.unknown():
        shardy.propagate(xla_form(ir.Module.parse(module(count))))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.nightly
def test_memory_grows_linearly_with_the_number_of_arguments():
    count = 6000
    printed = subprocess.run(
        [sys.executable, "-c", GROWTH, str(count)], capture_output=True, text=True, check=True
    )
    before, after = map(int, printed.stdout.split())
    # One list of all arguments for each of them is 288 MB, and was made four times.
    assert after - before < 40_000 * count
