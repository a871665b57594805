"""Executors of search tasks: this machine, or a Dask cluster. Both are a `concurrent.futures.Executor`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from inspector.core.errors import InvalidInput, shown

RECONNECT_SECONDS = 5.0
_CONNECT_SECONDS = 5  # until a scheduler that does not answer is reported


class ClusterExecutor(Executor):
    """An executor whose scheduler can be lost. Its futures then never end, so its user asks `connected`."""

    def __init__(self, executor: Executor, client: Any) -> None:
        self._executor = executor
        self._client = client
        self._lost_at: float | None = None

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a task to the cluster."""
        return self._executor.submit(function, *args, **kwargs)

    def connected(self) -> bool:
        """Return False if the scheduler has not answered for `RECONNECT_SECONDS`."""
        if self._client.status == "running":
            self._lost_at = None
            return True
        if self._lost_at is None:
            self._lost_at = time.monotonic()
        return time.monotonic() - self._lost_at < RECONNECT_SECONDS


def local_workers() -> int:
    """Return how many tasks this machine runs at once."""
    return os.cpu_count() or 1


@contextmanager
def local(workers: int | None = None) -> Iterator[Executor]:
    """Run tasks in worker processes of this machine; a thread waits for each."""
    executor = ThreadPoolExecutor(workers or local_workers(), "search")
    try:
        yield executor
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


@contextmanager
def dask(address: str) -> Iterator[Executor]:
    """Run tasks on the Dask cluster of a scheduler such as `tcp://scheduler:8786`.

    Raises:
      InvalidInput: dask.distributed is not installed, or the scheduler does not answer.
    """
    try:
        from distributed import Client
    except ImportError:
        raise InvalidInput(
            "--dask needs dask.distributed, which is not installed: pip install 'sharding-inspector[dask]'"
        ) from None
    try:
        client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise InvalidInput(
            f"--dask is {shown(address)}, but no Dask scheduler answers there: {reason}"
        ) from None
    try:
        # A task is pure: equal ones may share a result, and a lost one is run again.
        yield ClusterExecutor(client.get_executor(pure=False, retries=2), client)
    finally:
        # Without a scheduler, it waits for one until the timeout.
        with suppress(TimeoutError):
            client.close(timeout=_CONNECT_SECONDS if client.status == "running" else 1)
