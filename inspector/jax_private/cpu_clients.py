"""Emulated CPU devices on a separate client, next to the devices of `jax.devices()`.

JAX starts one CPU client with a fixed number of devices. Code that is only traced, and XLA's partitioner,
need other numbers in the same process.

Public replacement: none. `jax.config.jax_num_cpu_devices` sets the number once, before JAX starts.
Tried on JAX 0.10.2 and 0.12.0.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
from jax._src import xla_bridge
from jaxlib import _jax, xla_client

# The address at which processes exchange arrays of CPU devices.
#
# Public replacement: none. `jax.distributed.initialize` has the address of the coordinator only. By default,
# Gloo listens on that of the machine's host name. Tried on JAX 0.10.2 and 0.12.0.


def listen_on(host: str) -> None:
    """Exchange arrays through this host name or IP address. Must be called before JAX starts."""
    _jax.make_gloo_tcp_collectives = functools.partial(_jax.make_gloo_tcp_collectives, hostname=host)


# Replace the functions of JAX that list or count devices.
#
# Code that makes its own mesh calls them, and must see the devices of the layout while it is only traced.
#
# Public replacement: none. `jax.devices` and its like are public, but `jax.make_mesh` calls another name of
# the same function. Tried on JAX 0.10.2 and 0.12.0.


NAMES = ("devices", "local_devices", "device_count", "local_device_count")


def replace(wrap: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> dict[str, Any]:
    """Replace each function by what `wrap` returns for its name and the original. Return the originals."""
    originals = {name: getattr(jax, name) for name in NAMES}
    for name, original in originals.items():
        setattr(jax, name, wrap(name, original))
    # `jax.make_mesh` and `mesh_utils.create_device_mesh` call this one.
    xla_bridge.devices = jax.devices
    return originals


Client: TypeAlias = xla_client.Client


def cpu_client(devices: int) -> Client:
    """Return a new client with this many emulated CPU devices, in the method `devices()`."""
    return xla_client.make_cpu_client(num_devices=devices)
