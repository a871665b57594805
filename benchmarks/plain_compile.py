"""Compile one of our models ahead of time for a TPU or GPU with JAX alone, as in JAX's documentation.

Each line on standard input is a JSON request; the answer is a line on standard output. The process stays
warm. From this project it uses only the model and the descriptions of GPUs.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import linen as nn
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from inspector.model.built_in.catalogue import CATALOGUE


def compile_all(topology: dict[str, Any], model: str, sizes: dict, mesh: list, rules: list) -> dict:
    """Lower and compile init, train step and inference; return seconds and the programs that do not fit."""
    began = time.perf_counter()
    devices = topologies.get_topology_desc(**topology).devices
    axes = [name for name, _ in mesh]
    grid = Mesh(np.array(devices).reshape([size for _, size in mesh]), axes)
    linen_rules = [(name, tuple(axes) or None) for name, axes in rules]
    module, _, function = CATALOGUE[model].build.partition(":")
    built = getattr(__import__(module, fromlist=[function]), function)(**sizes)

    def placed(names: tuple) -> NamedSharding:
        return NamedSharding(grid, nn.logical_to_mesh_axes(names, linen_rules) or PartitionSpec())

    with jax.set_mesh(grid), nn.logical_axis_rules(linen_rules):
        key = jax.eval_shape(lambda: jax.random.key(0))
        batch = jax.eval_shape(built.batch, key)
        state = jax.eval_shape(built.init, key, batch)
        specs = nn.get_partition_spec(state)
        states = nn.logical_to_mesh_sharding(specs, grid, linen_rules)
        batches = {name: placed(names) for name, names in built.batch_axes.items()}
        programs = {
            "init": (built.init, (placed(()), batches), states, (key, batch)),
            "train_step": (built.step, (states, batches), (states, None), (state, batch)),
            "apply": (built.apply, (states, batches), placed(built.output_axes), (state, batch)),
        }
        too_large = []
        for name, (one, inputs, outputs, arguments) in programs.items():
            lowered = jax.jit(one, in_shardings=inputs, out_shardings=outputs).lower(*arguments)
            try:
                lowered.compile()
            except jax.errors.JaxRuntimeError as error:
                if "Ran out of memory" not in str(error):
                    raise
                too_large.append(name)
    return {"seconds": time.perf_counter() - began, "too_large": too_large}


def main() -> None:
    """Answer requests until standard input ends."""
    for line in sys.stdin:
        request = json.loads(line)
        del request["ask"]
        if (path := request["topology"].pop("target_config_file", None)) is not None:
            request["topology"]["target_config"] = Path(path).read_text("utf-8")
        print(json.dumps(compile_all(**request)), flush=True)


if __name__ == "__main__":
    main()
