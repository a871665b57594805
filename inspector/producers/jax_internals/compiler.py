"""Compile a module that was lowered before, for given devices and with given options.

Public replacement: none. `jax.stages.Lowered.compile` takes neither a module nor devices. The options are
public: `jax.extend.backend.get_compile_options`. Tried on JAX 0.10.2 and 0.12.0.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from jax._src import compiler
from jax._src.lib import xla_client
from jax.extend.mlir import ir

LoadedExecutable: TypeAlias = xla_client.LoadedExecutable


def compile_module(
    module: ir.Module, devices: Sequence[Any], options: xla_client.CompileOptions
) -> LoadedExecutable:
    """Return XLA's executable of an `ir.Module`. It comes from JAX's compilation cache if it is there.

    Raises:
      jax.errors.JaxRuntimeError: the compiler fails.
    """
    used = tuple(devices)
    return compiler.compile_or_get_cached(
        used[0].client, module, np.array(used), options, (), xla_client.DeviceList(used), None
    )


def compile_uncached(
    module: ir.Module, devices: Sequence[Any], options: xla_client.CompileOptions
) -> LoadedExecutable:
    """Return XLA's executable of an `ir.Module`, without JAX's compilation cache and its callbacks.

    Raises:
      jax.errors.JaxRuntimeError, ValueError, NotImplementedError: the compiler fails.
    """
    used = tuple(devices)
    return used[0].client.compile_and_load(
        module, executable_devices=xla_client.DeviceList(used), compile_options=options
    )
