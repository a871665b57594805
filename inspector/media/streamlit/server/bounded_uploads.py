"""Bound the uploads that the server holds in its memory.

Streamlit reads an upload into memory, where it stays until the page has copied it to a file, usually a
second. Many uploads at the same time wait here for each other, before their bodies are read. Uploads that
no page has taken for a minute make room for others.
"""

import asyncio
import functools
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from inspector.jobs import host_memory
from inspector.media.streamlit.server.middleware import UPLOADS, USER
from inspector.media.streamlit.streamlit_internals import drop_upload, stored_uploads
from inspector.readers import limits
from inspector.text.formatting import bytes_text

# Of the memory of the machine or container. A small one still holds one upload of the largest size.
SHARE = 1 / 10
# Seconds that an upload waits for others. Browsers and proxies wait longer for an answer.
PATIENCE_SECONDS = 50.0
# Seconds after which an upload that is still in memory makes room: its page had time to read it.
UNCLAIMED_SECONDS = 60.0
_CHECK_SECONDS = 0.1
_OVERHEAD = 64 * 1024  # bytes of a request around the file
# A body keeps its room until it has arrived, so it may not take longer than with a line of 1 Mbit/s.
SLOWEST = 125_000  # bytes a second
_START_SECONDS = 60.0  # in addition, for short bodies and pauses
_CLOSE = {"Connection": "close"}
_MOST_OF_SESSION = limits.MOST_UPLOAD_BYTES + _OVERHEAD


@functools.cache
def most_bytes() -> int:
    """Return the largest number of bytes in memory of uploads of all sessions."""
    return max(_MOST_OF_SESSION, int(host_memory.total_bytes() * SHARE))


@dataclass(eq=False)
class BoundedUploads:
    """Lets uploads wait until there is room, and refuses them if there is none after `patience` seconds.

    The uploads of one signed-in user that arrive at the same time have room for one of the largest size, so
    that no user keeps the room from others.

    Args:
      most: bytes of all sessions; None is `most_bytes`. One session may have those of one upload.
      start_seconds: how long a body may take, in addition to its bytes at `SLOWEST`.
      stored: returns the bytes of each upload that Streamlit holds, by session and file.
      drop: has Streamlit forget the upload of a session and file.
      unclaimed: seconds after which an upload makes room.
    """

    app: ASGIApp
    most: int | None = None
    patience: float = PATIENCE_SECONDS
    stored: Callable[[], Mapping[tuple[str, str], int]] = stored_uploads
    drop: Callable[[str, str], None] = drop_upload
    unclaimed: float = UNCLAIMED_SECONDS
    start_seconds: float = _START_SECONDS
    # Bytes by user, or by session without sign-in. Only the server's loop changes it.
    _arriving: Counter[str] = field(default_factory=Counter, init=False)
    # When an upload was first found in memory.
    _seen: dict[tuple[str, str], float] = field(default_factory=dict, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "PUT" or UPLOADS not in scope["path"]:
            await self.app(scope, receive, send)
            return
        session = scope["path"].partition(UPLOADS)[2].partition("/")[0]
        length = Headers(scope=scope).get("content-length", "")
        if not (length.isascii() and length.isdecimal() and len(length) < 16):
            await PlainTextResponse("An upload must say its length.", 411)(scope, receive, send)
            return
        size = int(length)
        if size > _MOST_OF_SESSION:
            await PlainTextResponse("The file is too large.", 413, _CLOSE)(scope, receive, send)
            return
        user = scope.get(USER, session)
        until = time.monotonic() + self.patience
        while (reason := self._why_not(session, user, size)) is not None:
            self._make_room()
            if time.monotonic() >= until:
                await PlainTextResponse(reason, status_code=503)(scope, receive, send)
                return
            await asyncio.sleep(_CHECK_SECONDS)
        self._arriving[user] += size
        try:
            async with asyncio.timeout(self.start_seconds + size / SLOWEST):
                await self.app(scope, receive, send)
        except TimeoutError:
            await PlainTextResponse("The upload is too slow.", 408, _CLOSE)(scope, receive, send)
        finally:
            self._arriving[user] -= size
            if not self._arriving[user]:
                del self._arriving[user]

    def _why_not(self, session: str, user: str, size: int) -> str | None:
        """Return why an upload cannot be read now, or None."""
        stored = self.stored()
        now = time.monotonic()
        self._seen = {place: self._seen.get(place, now) for place in stored}
        own = sum(count for (other, _), count in stored.items() if other == session)
        own += self._arriving[user]
        if own + size > _MOST_OF_SESSION:
            return (
                f"{bytes_text(own)} of your uploads are in memory, and at most "
                f"{bytes_text(_MOST_OF_SESSION)} are allowed."
            )
        most = most_bytes() if self.most is None else self.most
        together = sum(stored.values()) + self._arriving.total()
        if together + size > most:
            return (
                f"{bytes_text(together)} of other uploads are being read, and at most {bytes_text(most)}"
                " are allowed: try again."
            )
        return None

    def _make_room(self) -> None:
        """Drop the uploads that no page has taken in time."""
        now = time.monotonic()
        for (session, file), since in list(self._seen.items()):
            if now - since >= self.unclaimed:
                self.drop(session, file)
                del self._seen[session, file]
