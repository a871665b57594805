"""Replace the functions of JAX that list or count devices.

Code that makes its own mesh calls them, and must see the devices of the layout while it is only traced.

Public replacement: none. `jax.devices` and its like are public, but `jax.make_mesh` calls another name of the
same function. Tried on JAX 0.10.2 and 0.12.0.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax._src import xla_bridge

NAMES = ("devices", "local_devices", "device_count", "local_device_count")


def replace(wrap: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> dict[str, Any]:
    """Replace each function by what `wrap` returns for its name and the original. Return the originals."""
    originals = {name: getattr(jax, name) for name in NAMES}
    for name, original in originals.items():
        setattr(jax, name, wrap(name, original))
    # `jax.make_mesh` and `mesh_utils.create_device_mesh` call this one.
    xla_bridge.devices = jax.devices
    return originals
