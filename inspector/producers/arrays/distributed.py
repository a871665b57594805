"""Connect the processes of one mesh, and gather JSON values from all of them."""

import json
import zlib
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from inspector.producers.jax_internals import gloo

_T = TypeVar("_T")

CONNECT_TIMEOUT = 60  # seconds; all processes start together, and importing JAX takes one second
# Seconds, JAX's default. The engine notices a dead process at once; a busy or sleeping machine must not
# exceed this.
HEARTBEAT_TIMEOUT = 100


def meet(address: str, processes: int, index: int) -> None:
    """Connect this process as number `index` of `processes`, which meet at `address`, a `host:port`.

    JAX listens on that host only.
    """
    host, _, _ = address.rpartition(":")
    gloo.listen_on(host)
    jax.distributed.initialize(
        coordinator_address=address,
        num_processes=processes,
        process_id=index,
        cluster_detection_method="deactivate",
        coordinator_bind_address=address,
        initialization_timeout=CONNECT_TIMEOUT,
        heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT,
    )


def gathered(value: object) -> list[Any]:
    """Return the JSON values of all processes, in process order. All processes must call it together."""
    if jax.process_count() == 1:
        return [value]
    text = np.frombuffer(zlib.compress(json.dumps(value).encode(), 1), dtype=np.uint8)
    lengths = multihost_utils.process_allgather(np.array(text.size, dtype=np.int32))
    room = np.zeros(int(lengths.max()), dtype=np.uint8)
    room[: text.size] = text
    rows = multihost_utils.process_allgather(room)
    return [
        json.loads(zlib.decompress(row[:length].tobytes()))
        for row, length in zip(np.asarray(rows), lengths.tolist(), strict=True)
    ]


def agreed(value: _T) -> _T:
    """Return the JSON value of process 0. All processes must call it together."""
    agreed: _T = gathered(value)[0]
    return agreed
