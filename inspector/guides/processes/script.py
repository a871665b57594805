"""The Python script that runs a HostLocal in several processes."""

from __future__ import annotations

from inspector.core.snapshot import Spec
from inspector.guides.processes import HostLocal

_SCRIPT = """\
import os
import socket
import subprocess
import sys

PROCESSES = {processes}

if len(sys.argv) == 1:  # started by hand: start the processes, and wait for them
    environment = os.environ | {{"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "{share}"}}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = "127.0.0.1:" + str(probe.getsockname()[1])  # process 0 will listen there
    commands = [[sys.executable, __file__, str(index), address] for index in range(PROCESSES)]
    started = [subprocess.Popen(command, env=environment) for command in commands]
    sys.exit(max(one.wait() for one in started))

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

index, address = int(sys.argv[1]), sys.argv[2]
jax.distributed.initialize(address, PROCESSES, index, coordinator_bind_address=address)

mesh = Mesh(np.array(jax.devices()).reshape({mesh_shape}), {names})
spec = {spec}
local = np.arange({elements}, dtype=np.int32).reshape({local_shape}){offset}
{convert}
computed = jax.jit(lambda x: x, in_shardings=NamedSharding(mesh, spec))({argument})
back = multihost_utils.global_array_to_host_local_array(computed, mesh, spec)

held = [(shard.device.id, shard.index) for shard in computed.addressable_shards]
print(f"process {{index}}: {{local.shape}} -> {{computed.shape}} -> {{back.shape}}, addresses {{held}}")
"""

_CONVERT = """
whole = multihost_utils.host_local_array_to_global_array(local, mesh, spec)
"""


def script(wanted: HostLocal) -> str:
    """Return the script."""
    count = wanted.given(0).size
    return _SCRIPT.format(
        processes=wanted.processes,
        share=wanted.devices // wanted.processes,
        mesh_shape=wanted.mesh_shape,
        names=wanted.axis_names,
        spec=_spec(wanted.spec),
        elements=count,
        local_shape=wanted.local_shape,
        offset=f" + {count} * index" if wanted.data == "own" else "",
        convert=_CONVERT if wanted.convert else "",
        argument="whole" if wanted.convert else "local",
    )


def _spec(spec: Spec) -> str:
    entries = (
        repr(axes[0]) if axes and len(axes) == 1 else repr(tuple(axes)) if axes else "None"
        for axes in spec
    )
    return f"P({', '.join(entries)})"
