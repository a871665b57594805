"""The limit on the users' open files in the memory of the server.

A worker reads each file, so what crosses to the server is bounded. But Snapshots of many tabs add up, and a
Snapshot takes several times the bytes of its JSON. So their JSON is counted from before they are decoded
until no tab, board or cache holds them any more.
"""

import contextlib
import functools
import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence

from inspector.jobs import host_memory
from inspector.jobs.engine import Requester
from inspector.records.snapshot import Snapshot
from inspector.text.errors import InvalidInput
from inspector.text.formatting import bytes_text

# Of the memory of the machine or container, in bytes of JSON. Measured: a decoded Snapshot takes 5 to 6 times
# its JSON, and twice that while it is decoded. So opened Snapshots take about a fifth of the memory.
SHARE = 1 / 32
LEAST = 64 * 1024**2  # bytes, so that a small machine can open a large Snapshot
# The share of one owner of all open files.
OWNER_SHARE = 0.5


class OpenedFiles:
    """Counts the bytes of opened Snapshots by owner. Thread safe.

    Args:
      most: bytes of JSON of all owners together; None is a share of this machine.
    """

    def __init__(self, most: int | None = None) -> None:
        self.most = max(LEAST, int(host_memory.total_bytes() * SHARE)) if most is None else most
        self._held: Counter[str] = Counter()  # bytes by owner
        self._total = 0
        self._sessions: set[str] = set()  # that have opened a file, until `forget`
        self._lock = threading.RLock()  # a finalizer can run in the thread that holds it
        self._decoding = threading.Lock()

    @property
    def total(self) -> int:
        """Return the bytes of JSON of all Snapshots that are open."""
        return self._total

    def sessions(self) -> set[str]:
        """Return the browser sessions that may have files open."""
        with self._lock:
            return set(self._sessions)

    def forget(self, session: str) -> None:
        """Record that a browser session has ended."""
        with self._lock:
            self._sessions.discard(session)

    @contextlib.contextmanager
    def room(self, size: int, requester: Requester, name: str) -> Iterator[list[Snapshot]]:
        """Reserve room for `size` bytes of JSON, decoded by one caller at a time.

        Yields a list. The room is free again when no Snapshot that the caller adds to it exists any more, at
        once if there is none.

        Raises:
          InvalidInput: the owner, or all together, would have more open than allowed.
        """
        owner = requester.owner
        with self._lock:
            self._refuse(size, owner, name)
            if requester.session is not None:
                self._sessions.add(requester.session)
            self._held[owner] += size
            self._total += size
        opened: list[Snapshot] = []
        try:
            with self._decoding:  # which takes as much memory again
                yield opened
        finally:
            self._release_with(opened, size, owner)

    def _refuse(self, size: int, owner: str, name: str) -> None:
        of_owner = int(self.most * OWNER_SHARE)
        if self._held[owner] + size > of_owner:
            raise InvalidInput(
                f"{name} makes a Snapshot of {bytes_text(size)}, and {bytes_text(self._held[owner])} of "
                f"yours are open, but at most {bytes_text(of_owner)} may be: close a tab or remove pins, or "
                "use the command line"
            )
        if self._total + size > self.most:
            raise InvalidInput(
                f"{name} makes a Snapshot of {bytes_text(size)}, and {bytes_text(self._total)} of all "
                f"users are open, but at most {bytes_text(self.most)} may be: try again when others have "
                "closed theirs, or use the command line"
            )

    def _release_with(self, opened: Sequence[Snapshot], size: int, owner: str) -> None:
        if not opened:
            self._release(size, owner)
            return
        share, rest = divmod(size, len(opened))
        for number, snapshot in enumerate(opened):
            freed = share + (rest if number == 0 else 0)
            weakref.finalize(snapshot, self._release, freed, owner).atexit = False

    def _release(self, size: int, owner: str) -> None:
        with self._lock:
            self._total -= size
            self._held[owner] -= size
            if self._held[owner] <= 0:
                del self._held[owner]


@functools.cache
def shared() -> OpenedFiles:
    """Return the count of this process."""
    return OpenedFiles()
