"""XLA's own SPMD partitioner, run in this process: the program of one device, before any pass for a platform.

A compile on emulated CPU devices writes the module right after the partitioner, and ends there
(`jax_internals.partitioner_dump`). The emulated devices belong to a separate client, so this process can use
any devices of JAX.
"""

import contextlib
import functools
import os
import resource
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
from jax.extend import backend
from jax.extend.mlir import ir

from inspector.jax_private import partitioner_dump
from inspector.jax_private.cpu_clients import Client, cpu_client
from inspector.jobs import host_memory
from inspector.text.errors import InvalidInput
from inspector.tracing.mlir.walk import (
    function_type,
    main_function,
    operations,
    set_signature_attributes,
    signature_attributes,
    symbols,
)

# Devices of a client. More than the last cannot be emulated: ids of other processes begin there.
_CLIENTS = (8, 64, 256, 1024, 2048)
MOST_DEVICES = _CLIENTS[-1]
_OLD = "mhlo.sharding"
_LOG = "log"
_MEMORY = Path("/dev/shm")  # of Linux: files in memory


def partitioned(module: ir.Module, devices: int) -> str:
    """Change a module with `prepare`, and return the text of `partitioned_prepared`.

    Raises:
      InvalidInput: the size of a dimension is unknown, or XLA refuses the module.
    """
    return partitioned_prepared(prepare(module), devices)


def prepare(module: ir.Module) -> ir.Module:
    """Return the module itself after the changes that `partitioned_prepared` needs.

    Raises:
      InvalidInput: the size of a dimension of an argument or result is unknown.
    """
    with module.context, ir.Location.unknown():
        _refuse_unknown_sizes(module)
        _remove_old_shardings(module)
        partitioner_dump.add_end(module, main_function(module.operation))
    return module


def partitioned_prepared(module: ir.Module, devices: int, log: list[str] | None = None) -> str:
    """Return the HLO text of one device after the partitioner.

    Args:
      module: StableHLO with shardings on a mesh of `devices` devices, after `prepare`. It is not changed.
      devices: at most `MOST_DEVICES`.
      log: gets the output of the partitioner to standard error.

    Raises:
      InvalidInput: XLA refuses the module; the sentence has its words.
    """
    folder = tempfile.mkdtemp(prefix="xla", dir=_MEMORY if _MEMORY.is_dir() else None)
    reason = ""
    try:
        with _CREATION:
            client = _client(next(count for count in _CLIENTS if count >= devices))
        used = client.devices()[:devices]
        options = backend.get_compile_options(
            num_replicas=1,
            num_partitions=devices,
            device_assignment=np.array([[device.id for device in used]]),
            env_options_overrides=partitioner_dump.options(folder),
        )
        try:
            with _STANDARD_ERROR.into(Path(folder) / _LOG):
                partitioner_dump.compile_uncached(module, used, options)
        except (jax.errors.JaxRuntimeError, ValueError, NotImplementedError) as error:
            reason = str(error).strip().partition("\n")[0][:300]
        written = Path(folder) / _LOG
        if log is not None and written.exists():
            log.append(written.read_text(errors="replace"))
        text = partitioner_dump.text_in(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if text is None:
        raise InvalidInput(f"XLA cannot partition this program: {reason}")
    return text


class _StandardError:
    """Writes what this process writes to standard error to a file. XLA has no other way to its warnings.

    Threads that partition at the same time share the file of the first one. So a log is that of one program
    only if no other is partitioned then.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._saved = -1

    @contextlib.contextmanager
    def into(self, path: Path) -> Iterator[None]:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._saved = os.dup(2)
                file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                os.dup2(file, 2)
                os.close(file)
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    os.dup2(self._saved, 2)
                    os.close(self._saved)


_STANDARD_ERROR = _StandardError()
_CREATION = threading.Lock()  # of clients


def _refuse_unknown_sizes(module: ir.Module) -> None:
    """Refuse arguments and results with a dimension of unknown size. XLA ends the process for some of them.

    Shardy refuses operations with such values, but not a program that only returns them.
    """
    kind = function_type(main_function(module.operation))
    for value in (*kind.inputs, *kind.results):
        if isinstance(value, ir.ShapedType) and not value.has_static_shape:
            raise InvalidInput(f"XLA cannot partition {value}: the size of a dimension is unknown")


@functools.cache
def _client(devices: int) -> Client:
    """Return a client with this many emulated CPU devices: 4 MB for 8 of them, 200 MB for 2,048.

    A job that parses a file has a limit of its data, which counts the stacks of threads that are never used.
    So the limit grows by the size of the client. Another limit, on resident memory, does not change.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    before = host_memory.private_data_bytes()
    if soft == resource.RLIM_INFINITY or before is None:
        return cpu_client(devices)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    try:
        client = cpu_client(devices)
    finally:
        grown = (host_memory.private_data_bytes() or before) - before
        soft += max(0, grown)
        resource.setrlimit(
            resource.RLIMIT_DATA,
            (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard),
        )
    return client


def _remove_old_shardings(module: ir.Module) -> None:
    """Remove the shardings that a round trip through HLO leaves in addition to those of Shardy.

    With one of them, XLA would not use Shardy.
    """
    if not symbols(module.operation, "sdy.mesh"):
        return
    for operation in (module.operation, *operations(module.operation)):
        if _OLD in operation.attributes:
            del operation.attributes[_OLD]
        for key in ("arg_attrs", "res_attrs"):
            if key in operation.attributes:
                listed = signature_attributes(operation, key)
                for named in listed:
                    named.pop(_OLD, None)
                set_signature_attributes(operation, key, listed)
