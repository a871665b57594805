"""The address at which processes exchange arrays of CPU devices.

Public replacement: none. `jax.distributed.initialize` has the address of the coordinator only. By default,
Gloo listens on that of the machine's host name. Tried on JAX 0.10.2 and 0.12.0.
"""

import functools

from jaxlib import _jax


def listen_on(host: str) -> None:
    """Exchange arrays through this host name or IP address. Must be called before JAX starts."""
    _jax.make_gloo_tcp_collectives = functools.partial(_jax.make_gloo_tcp_collectives, hostname=host)
