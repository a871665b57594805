"""Emulated CPU devices on a separate client, next to the devices of `jax.devices()`.

JAX starts one CPU client with a fixed number of devices. Code that is only traced, and XLA's partitioner,
need other numbers in the same process.

Public replacement: none. `jax.config.jax_num_cpu_devices` sets the number once, before JAX starts.
Tried on JAX 0.10.2 and 0.12.0.
"""

from typing import TypeAlias

from jaxlib import xla_client

Client: TypeAlias = xla_client.Client


def cpu_client(devices: int) -> Client:
    """Return a new client with this many emulated CPU devices, in the method `devices()`."""
    return xla_client.make_cpu_client(num_devices=devices)
