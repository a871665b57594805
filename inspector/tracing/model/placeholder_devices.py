"""Devices for the code of a user's model that makes its own mesh while it is only traced.

A process that plans or compiles has one device, but the model's code may call `jax.devices()` or
`jax.make_mesh` and expects as many devices as the layout has. It then finds the devices of a second CPU
client, made when they are first needed. Nothing is placed on them by this project.
"""

import functools
from collections.abc import Callable
from typing import Any

from jax.sharding import AbstractDevice

from inspector.jax_private import cpu_clients
from inspector.jax_private.cpu_clients import cpu_client

# What `Mesh.abstract_mesh` says of the devices of a mesh of CPU devices.
TRACED_DEVICE = AbstractDevice(device_kind="cpu", num_cores=None, platform="cpu")
MOST = 4096  # devices; a client of as many takes 1.6 s and 0.4 GB

_count = 1
_was_asked = False
_real: dict[str, Callable[..., Any]] = {}


def provide(devices: int) -> None:
    """Let `jax.devices()` have this many devices from now on, unless JAX has at least as many.

    More than `MOST` are not provided.
    """
    global _count, _was_asked
    _install()
    _was_asked = False
    enough = _real["device_count"]() >= devices
    _count = 1 if enough or devices > MOST else devices


def were_used() -> bool:
    """Return whether the devices were asked for since the last `provide`."""
    return _was_asked


@functools.lru_cache(2)
def _placeholders(count: int) -> tuple[Any, ...]:
    return tuple(cpu_client(count).devices())


def _install() -> None:
    """Replace the functions of JAX that list or count devices, once in a process."""
    if not _real:
        _real.update(cpu_clients.replace(_provided))


def _provided(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    counts = name.endswith("count")

    @functools.wraps(real)
    def function(*arguments: Any, **options: Any) -> Any:
        global _was_asked
        _was_asked = True
        if _count == 1 or arguments or options:
            return real(*arguments, **options)
        devices = _placeholders(_count)
        return len(devices) if counts else list(devices)

    return function
