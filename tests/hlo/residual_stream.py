"""A gradient through layers in a Python loop, each of which adds to a residual stream.

`python -m tests.hlo.residual_stream tpu:v5e:2x2 2 4 6` compiles it with these numbers of layers. It prints as
JSON, for each of them, the bytes that XLA counts and those of the program before the compile.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import SingleDeviceSharding

from inspector import hlo
from inspector.hlo.analysis import Analysis
from inspector.hlo.fused_values import FusedTraffic, fused_traffic

# Larger than the memory on the chip of a TPU, in which a compiler keeps small arrays.
ROWS, WIDTH = 65536, 1024


def loss(weights: list[tuple[jax.Array, jax.Array]], x: jax.Array) -> jax.Array:
    for first, second in weights:
        normalized = x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True))
        x = x + jnp.tanh(normalized @ first) @ second
    return (x * x).sum()


def lowered(layers: int, device: Any = None) -> jax.stages.Lowered:
    sharding = None if device is None else SingleDeviceSharding(device)
    matrix = jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32, sharding=sharding)
    x = jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.float32, sharding=sharding)
    return jax.jit(jax.grad(loss)).lower([(matrix, matrix)] * layers, x)


def before_compile(program: jax.stages.Lowered, **options: Any) -> FusedTraffic:
    (module,) = hlo.parser.parse(program.compiler_ir("hlo").as_hlo_text())
    traffic = fused_traffic(Analysis(module), **options)
    assert traffic is not None
    return traffic


def main() -> None:
    from inspector.compiling.compile_layout import devices_of
    from inspector.machines import targets

    device, *_ = devices_of(targets.parse(sys.argv[1]))
    both = []
    for layers in map(int, sys.argv[2:]):
        program = lowered(layers, device)
        compiled = program.compile().cost_analysis()["bytes accessed"]
        both.append((compiled, before_compile(program).total))
    print(json.dumps(both))


if __name__ == "__main__":
    main()
