"""The Python script that runs a HostLocal in several processes."""

from inspector.core.sharding_text import spec_text
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


def script(request: HostLocal) -> str:
    """Return the script."""
    count = request.given(0).size
    return _SCRIPT.format(
        processes=request.processes,
        share=request.devices // request.processes,
        mesh_shape=request.mesh_shape,
        names=request.axis_names,
        spec=spec_text(request.spec),
        elements=count,
        local_shape=request.local_shape,
        offset=f" + {count} * index" if request.data == "own" else "",
        convert=_CONVERT if request.convert else "",
        argument="whole" if request.convert else "local",
    )
