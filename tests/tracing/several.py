"""Jobs of several JAX processes: facts of each process, and failures during a collective."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxlib import _jax

from inspector.tracing import live_arrays

JOBS = {name: f"{__name__}:{name}" for name in ("facts", "gather", "wait_for_one")}
MEET = f"{__name__}:meet"

HOST_NAMES = []  # the host names that JAX passed to Gloo


def meet(address, processes, index):
    """Connect as in production, and record the host names of the collectives."""
    make = _jax.make_gloo_tcp_collectives

    def recorded(**options):
        HOST_NAMES.append(options.get("hostname"))
        return make(**options)

    _jax.make_gloo_tcp_collectives = recorded
    live_arrays.meet(address, processes, index)


def global_array() -> jax.Array:
    """Return an array of increasing numbers, sharded over all devices."""
    mesh = Mesh(np.array(jax.devices()), ("x",))
    whole = np.arange(4 * jax.device_count(), dtype=np.int32)
    sharding = NamedSharding(mesh, PartitionSpec("x"))
    return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])


def facts(payload, report):
    """Return facts of each process after a collective over all of them."""
    array = global_array()
    total = jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(array.sharding.mesh, PartitionSpec()))
    mine = {
        "pid": os.getpid(),
        "index": jax.process_index(),
        "count": jax.process_count(),
        "local": [device.id for device in jax.local_devices()],
        "devices": [[device.id, device.process_index] for device in jax.devices()],
        "sum": int(total(array)),
        "shards": [[s.device.id, np.asarray(s.data).tolist()] for s in array.addressable_shards],
        "sockets": _sockets(),
        "collectives": HOST_NAMES,
    }
    return {"processes": live_arrays.gathered(mine)}


def gather(payload, report):
    """Gather values of different lengths, and return the results of every process."""
    own = {"text": "é" * 1000 * jax.process_index(), "number": jax.process_index()}
    values = live_arrays.gathered(own)
    return {
        "gathered": live_arrays.gathered(values),
        "agreed": live_arrays.gathered(live_arrays.agreed(own["number"] + 7)),
    }


def wait_for_one(payload, report):
    """End one process while the others wait for it in a collective."""
    report("collective", pid=os.getpid())
    if jax.process_index() == payload["number"]:
        time.sleep(0.3)
        if payload["how"] == "abort":
            os.write(2, b"F1120 10:52:15.065337    4988 literal.cc:12] Check failed: 3 == 2\n")
            os.abort()
        if payload["how"] == "raise":
            raise ValueError("this process failed")
        os.kill(os.getpid(), signal.SIGKILL)
    multihost_utils.sync_global_devices("all of them")
    return {}


def _sockets() -> list[str]:
    """Return the local address of every socket of this process, in Linux's hexadecimal form."""
    mine = set()
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            target = os.readlink(f"/proc/self/fd/{entry}")
            if target.startswith("socket:["):
                mine.add(target[len("socket:[") : -1])
    found = []
    for table in ("tcp", "tcp6", "udp", "udp6"):
        with open(f"/proc/self/net/{table}") as file:
            for line in list(file)[1:]:
                fields = line.split()
                if fields[9] in mine:
                    found.append(f"{table} {fields[3]} {fields[1].rpartition(':')[0]}")
    return found
