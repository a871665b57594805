"""The settings of a server, and its log of requests.

They travel as JSON in an environment variable. Without it, the server is a dashboard for one local user.
"""

import datetime
import errno
import fcntl
import functools
import ipaddress
import json
import logging
import os
import queue
import threading
from dataclasses import dataclass
from typing import Any

from inspector.files import strict_json
from inspector.jobs.engine import Requester
from inspector.jobs.engine.pool import Event
from inspector.records import typed_json
from inspector.records.typed_json import Record
from inspector.text.errors import InvalidInput

VARIABLE = "SHARDING_INSPECTOR_SERVE"
SECRET_HEADER = "X-Proxy-Secret"


@dataclass(frozen=True)
class TrustedProxy(Record):
    """The proxy that signs users in, and through which alone the server is reached.

    Attributes:
      user_header: the header of each request with the name of its user.
      address: the IP address of the proxy; None if the server listens on a Unix socket.
      secret_digest: the SHA-256 of what the proxy sends in `SECRET_HEADER`; None if it sends nothing.
    """

    user_header: str
    address: str | None = None
    secret_digest: str | None = None


@dataclass(frozen=True)
class Serving(Record):
    """How a server is shared.

    Attributes:
      team: several people use it, as opposed to one local user.
      proxy: the proxy that signs users in; None without sign-in.
      audit_log: the file of the audit log, or None.
    """

    team: bool = False
    proxy: TrustedProxy | None = None
    audit_log: str | None = None


@functools.cache
def current() -> Serving:
    """Return the settings of this process."""
    text = os.environ.get(VARIABLE)
    if text is None:
        return Serving()
    return typed_json.decode(Serving, strict_json.parse(text, VARIABLE), VARIABLE)


def plain_address(address: str) -> str:
    """Return an IP address in the only form in which two are compared: `::ffff:10.0.0.2` is `10.0.0.2`.

    Raises:
      ValueError: it is not an IP address.
    """
    known = ipaddress.ip_address(address)
    return str(getattr(known, "ipv4_mapped", None) or known)


# The audit log of a team server: who ran what, and who changed the library.
#
# One JSON object a line. Each line is appended while the file is locked, so several servers can share a file,
# and a tool can rotate it. A line that does not fit on the disk is left out. The log has names and digests,
# but no secrets and no contents of Snapshots.


_WRITE_SECONDS = 5.0  # that `close` waits for lines that are not written yet

_log = logging.getLogger(__name__)


class AuditLog:
    """Appends lines to a file, which only its user can read. Without a path, does nothing.

    A thread writes, so that no caller waits for the disk.

    Raises:
      InvalidInput: the file cannot be written.
    """

    def __init__(self, path: str | None = None) -> None:
        self.path = path
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        if path is not None:
            try:
                self._append(b"")
            except OSError as error:
                raise InvalidInput(f"the audit log {path} cannot be written: {error.strerror}") from None
            self._thread = threading.Thread(target=self._write_all, name="audit log", daemon=True)
            self._thread.start()

    def job(self, event: Event) -> None:
        """Record the start, end, cancel or refusal of a job."""
        seconds = None if event.seconds is None else round(event.seconds, 3)
        self._record(
            f"job-{event.event}",
            event.requester,
            what=event.kind,
            layout=event.subject.layout,
            target=event.subject.target,
            outcome=event.outcome,
            seconds=seconds,
        )

    def library(self, event: str, requester: Requester, name: str, outcome: str) -> None:
        """Record a change of the library, or its refusal."""
        self._record(f"library-{event}", requester, what=name, outcome=outcome)

    def close(self) -> None:
        """Wait until all lines are written."""
        if self._thread is not None:
            self._lines.put(None)
            self._thread.join(_WRITE_SECONDS)
            self._thread = None

    def _record(self, event: str, requester: Requester, **facts: Any) -> None:
        if self._thread is None:
            return
        now = datetime.datetime.now(datetime.UTC)
        line = {
            "time": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "event": event,
            "user": requester.name,
            "user_id": requester.owner,
            "session": requester.session_digest,
            **facts,
        }
        self._lines.put(json.dumps(line).encode() + b"\n")

    def _write_all(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._append(line)
            except OSError as error:
                _log.error("The audit log %s cannot be written: %s", self.path, error.strerror)

    def _append(self, line: bytes) -> None:
        assert self.path is not None
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            before = os.fstat(file).st_size
            if os.write(file, line) < len(line):
                os.ftruncate(file, before)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(file)


@functools.cache
def shared() -> AuditLog:
    """Return the audit log of this process."""
    return AuditLog(current().audit_log)
