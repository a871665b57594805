"""Several processes on one mesh: how they meet, and how they tell each other what each one sees."""

from __future__ import annotations

import functools
import json
import zlib
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jaxlib import _jax

# Seconds. The others have been started by the same process, and need one to import JAX.
MEETING_TIMEOUT = 60
# JAX's own figure. Whoever dies is seen by the engine at once; this must only not be shorter than a
# machine may be asleep, or busy compiling.
HEARTBEAT_TIMEOUT = 100


def meet(address: str, processes: int, index: int) -> None:
    """Make this process number `index` of `processes`, which find each other at `host:port`.

    Nothing of it listens anywhere but on that host.
    """
    host, _, _ = address.rpartition(":")
    # JAX gives no way to say where the collectives listen, and without one they do on whatever
    # address the machine's name has.
    _jax.make_gloo_tcp_collectives = functools.partial(
        _jax.make_gloo_tcp_collectives, hostname=host
    )
    jax.distributed.initialize(
        coordinator_address=address,
        num_processes=processes,
        process_id=index,
        # All of them, and no look at what cluster this might be.
        cluster_detection_method="deactivate",
        coordinator_bind_address=address,
        initialization_timeout=MEETING_TIMEOUT,
        heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT,
    )


def gathered(value: Any) -> list[Any]:
    """The JSON value that each process calls this with, in order of the processes, on all of them.

    All processes must call it at the same point of their work.
    """
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


def agreed(value: Any) -> Any:
    """The JSON value that process 0 calls this with, on every process."""
    return gathered(value)[0]
