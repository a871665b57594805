"""One process of a job, which profiles some steps: `python late_process.py PORT COUNT INDEX LATE FOLDER`.

The process with the index LATE sleeps before every third step; with −1, none does.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

STEPS, DELAY = 18, 0.2


def main(port: int, count: int, index: int, late: int, folder: str) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", count, index, cluster_detection_method="deactivate")
    sharding = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), P("data"))
    x = jax.make_array_from_callback((128 * count, 512), sharding, lambda _: np.ones((128, 512), np.float32))

    @jax.jit
    def step(x: jax.Array) -> jax.Array:
        return jax.numpy.sum(jax.numpy.tanh(x @ (x.T @ x)))

    jax.block_until_ready(step(x))
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with jax.profiler.trace(f"{folder}/{index}", profiler_options=options):
        for number in range(STEPS):
            if index == late and number % 3 == 0:
                time.sleep(DELAY)
            jax.block_until_ready(step(x))
    (file,) = Path(folder, str(index)).rglob("*.xplane.pb")
    file.rename(Path(folder, f"host-{index}.xplane.pb"))


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:5]), sys.argv[5])
