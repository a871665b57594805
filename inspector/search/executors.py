"""Executors of search tasks: this machine, or a Dask cluster. Both are a `concurrent.futures.Executor`."""

import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from inspector.machines.compiler_options import Options
from inspector.search import task
from inspector.text.errors import InvalidInput, shown

RECONNECT_SECONDS = 5.0
NO_WORKER_SECONDS = 120.0  # a cluster that grows by itself takes a while to get its first worker
_COUNT_SECONDS = 5.0  # between two questions for the number of workers
_CONNECT_SECONDS = 5  # until a scheduler that does not answer is reported


class ClusterExecutor(Executor):
    """An executor that can lose its scheduler or all its workers.

    Futures of Dask then never end, so its user asks for `problem` now and then, in the thread that submits.
    """

    def __init__(self, executor: Executor, client: Any) -> None:
        self._executor = executor
        self._client = client
        self._waiting: dict[Future[Any], Any] = {}  # with the connection that each was sent over
        self._lost_at: float | None = None
        self._alone_since: float | None = None  # when it was first seen without workers
        self._counted_at = 0.0

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a task to the cluster."""
        inner = self._executor.submit(function, *args, **kwargs)
        outer: Future[Any] = Future()
        # While it reconnects, there is no connection, and the task is sent over the next one.
        self._waiting[outer] = self._client.scheduler_comm

        def finish(_: Future[Any]) -> None:
            with suppress(InvalidStateError):  # it was lost or cancelled
                if inner.cancelled():
                    outer.set_exception(ConnectionError("the task was cancelled"))
                elif (error := inner.exception()) is not None:
                    outer.set_exception(error)
                else:
                    outer.set_result(inner.result())

        def forget(_: Future[Any]) -> None:
            self._waiting.pop(outer, None)
            if outer.cancelled():
                inner.cancel()

        outer.add_done_callback(forget)
        inner.add_done_callback(finish)
        return outer

    def problem(self) -> str | None:
        """Return why tasks do not end, or None. End the futures that another scheduler does not know.

        The scheduler does not answer for `RECONNECT_SECONDS`, or has no worker for `NO_WORKER_SECONDS`.
        """
        now = time.monotonic()
        if self._client.status != "running":
            self._lost_at = self._lost_at or now
            lost = now - self._lost_at >= RECONNECT_SECONDS
            return "the Dask scheduler does not answer" if lost else None
        self._lost_at = None
        self._end_lost(self._client.scheduler_comm)
        if now - self._counted_at >= _COUNT_SECONDS:
            self._counted_at = now
            with suppress(Exception):  # the scheduler has just gone, which the next call sees
                alone = not self._client.scheduler_info()["workers"]
                self._alone_since = (self._alone_since or now) if alone else None
        if self._alone_since is not None and now - self._alone_since >= NO_WORKER_SECONDS:
            return f"the Dask cluster had no workers for {NO_WORKER_SECONDS:.0f} seconds"
        return None

    def _end_lost(self, connection: Any) -> None:
        for future, sent_over in list(self._waiting.items()):
            if sent_over is None:
                self._waiting[future] = connection
            elif sent_over is not connection:
                with suppress(InvalidStateError):
                    future.set_exception(ConnectionError("the scheduler was lost"))


def local_workers() -> int:
    """Return the number of tasks that this machine runs at once."""
    return os.cpu_count() or 1


@dataclass
class LocalExecutor(Executor):
    """Runs tasks in worker processes of this machine. `workers` and `unsafe` are those of `task.start`."""

    workers: int | None = None
    unsafe: Options = ()

    def submit(self, function: Callable[..., Any], /, *request: Any, **_: Any) -> Future[Any]:
        """Start a task, without a thread that waits for it. `function` is `task.run`.

        The result of the future returns the records of the task, which takes a moment.
        """
        kind, layouts, chip, *programs = request
        future: Future[Any] = Future()
        try:
            job, answer = task.start(kind, layouts, chip, *programs, workers=self.workers, unsafe=self.unsafe)
        except InvalidInput as error:
            future.set_exception(error)
            return future
        if job is None:
            future.set_result(answer)
            return future

        def end(_: Future[None]) -> None:
            with suppress(InvalidStateError):  # it was cancelled
                future.set_result(answer)

        job.ended.add_done_callback(end)
        future.add_done_callback(lambda done: job.cancel() if done.cancelled() else None)
        return future


@contextmanager
def local(workers: int | None = None, unsafe: Options = ()) -> Iterator[Executor]:
    """Run tasks on this machine."""
    yield LocalExecutor(workers, unsafe)


@contextmanager
def dask(address: str) -> Iterator[Executor]:
    """Run tasks on the Dask cluster of a scheduler such as `tcp://scheduler:8786`.

    Raises:
      InvalidInput: dask.distributed is not installed, or no scheduler answers at the address.
    """
    try:
        from distributed import Client
    except ImportError:
        raise InvalidInput(
            "--dask needs dask.distributed, which is not installed: pip install 'sharding-inspector[dask]'"
        ) from None

    class ClosedOnError(Client):
        """A client that is closed if it cannot start. Otherwise its destructor fails when Python exits."""

        def start(self, **settings: Any) -> None:
            try:
                super().start(**settings)
            except BaseException:
                with suppress(Exception):
                    self.close(timeout=1)
                raise

    try:
        for name in ("distributed", "distributed.client", "tornado.application"):
            # A lost scheduler ends the search with one sentence, without the log of its connection.
            logging.getLogger(name).setLevel(logging.CRITICAL)
        client = ClosedOnError(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise InvalidInput(
            f"--dask is {shown(address)}, but must be the address of a Dask scheduler that answers, such as "
            f"tcp://scheduler:8786: {reason}"
        ) from None
    try:
        # A task is pure: equal ones may share a result, and a lost one is run again.
        yield ClusterExecutor(client.get_executor(pure=False, retries=2), client)
    finally:
        # Without a scheduler, it waits for one until the timeout.
        with suppress(TimeoutError):
            client.close(timeout=_CONNECT_SECONDS if client.status == "running" else 1)
