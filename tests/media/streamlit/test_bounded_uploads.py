"""Uploads wait for room, and are refused if there is none; other requests pass."""

from __future__ import annotations

import asyncio

from starlette.responses import PlainTextResponse

from inspector.media.streamlit.server.bounded_uploads import BoundedUploads
from inspector.media.streamlit.server.middleware import UPLOADS, USER
from inspector.readers import limits


class Uploads:
    """A server whose uploads stay in memory, by session, until the test frees them."""

    def __init__(self, most: int, patience: float, unclaimed: float = 60.0) -> None:
        self.stored: dict[tuple[str, str], int] = {}
        self.bounded = BoundedUploads(self.read, most, patience, lambda: self.stored, self.drop, unclaimed)

    def drop(self, session: str, file: str) -> None:
        del self.stored[session, file]

    async def read(self, scope, receive, send) -> None:
        await asyncio.sleep(0.05)  # the body arrives
        session, file = scope["path"].split("/")[-2:]
        self.stored[session, file] = scope["size"]
        await PlainTextResponse("stored")(scope, receive, send)

    async def put(self, session: str, size: int | None, method: str = "PUT") -> tuple[int, str]:
        """Return the status and the body of the answer."""
        length = [] if size is None else [(b"content-length", str(size).encode())]
        scope = {
            "type": "http", "method": method, "path": f"{UPLOADS}{session}/file", "headers": length,
            "size": size or 0,
        }  # fmt: skip
        messages = []

        async def send(message) -> None:
            messages.append(message)

        async def receive():
            return {"type": "http.disconnect"}

        await self.bounded(scope, receive, send)
        return messages[0]["status"], messages[1]["body"].decode()


def test_uploads_that_fit_are_read_at_the_same_time():
    uploads = Uploads(100, 5.0)

    async def all_of_them():
        return await asyncio.gather(*(uploads.put(f"tab {n}", 30) for n in range(3)))

    assert [status for status, _ in asyncio.run(all_of_them())] == [200] * 3


def test_an_upload_waits_until_a_page_has_taken_another_one():
    uploads = Uploads(100, 5.0)

    async def two():
        await uploads.put("one", 80)
        second = asyncio.create_task(uploads.put("two", 80))
        await asyncio.sleep(0.3)
        assert not second.done()
        uploads.stored.clear()
        return await second

    assert asyncio.run(two()) == (200, "stored")


def test_uploads_that_arrive_count_before_they_are_stored():
    uploads = Uploads(100, 0.0)

    async def both():
        return await asyncio.gather(uploads.put("one", 80), uploads.put("two", 80))

    assert sorted(status for status, _ in asyncio.run(both())) == [200, 503]


def test_an_upload_is_refused_when_there_is_no_room_in_time():
    uploads = Uploads(100, 0.2)
    uploads.stored["other", "file"] = 90
    status, reason = asyncio.run(uploads.put("one", 20))
    assert status == 503 and "90 B" in reason and "100 B" in reason
    assert asyncio.run(uploads.put("one", 10))[0] == 200


def test_one_tab_cannot_take_the_room_of_others():
    uploads = Uploads(10 * limits.MOST_UPLOAD_BYTES, 0.0)
    uploads.stored["one", "other file"] = limits.MOST_UPLOAD_BYTES
    assert asyncio.run(uploads.put("one", limits.MOST_UPLOAD_BYTES))[0] == 503
    assert asyncio.run(uploads.put("two", limits.MOST_UPLOAD_BYTES))[0] == 200


def test_an_upload_that_no_page_takes_makes_room():
    uploads = Uploads(100, 5.0, unclaimed=0.3)
    uploads.stored["gone", "file"] = 90
    assert asyncio.run(uploads.put("one", 20))[0] == 200
    assert list(uploads.stored) == [("one", "file")]


def test_an_upload_without_a_length_is_refused():
    assert asyncio.run(Uploads(100, 0.0).put("one", None))[0] == 411


def test_other_requests_pass():
    uploads = Uploads(0, 0.0)
    assert asyncio.run(uploads.put("one", 10, "DELETE"))[0] == 200


def test_an_upload_larger_than_any_is_refused_at_once():
    status, _ = asyncio.run(Uploads(10**12, 50.0).put("one", 10**11))
    assert status == 413


def test_a_body_that_does_not_arrive_gives_its_room_back():
    async def read(scope, receive, send) -> None:
        while (await receive())["more_body"]:
            pass

    async def slow():
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def silent():
        await asyncio.sleep(60)

    async def statuses():
        bounded = BoundedUploads(read, 100, 0.0, dict, start_seconds=0.2)
        return [await _put(bounded, "one", receive) for receive in (slow, silent)]

    assert asyncio.run(statuses()) == [408, 408]


def test_one_user_does_not_keep_the_room_from_others():
    most = limits.MOST_UPLOAD_BYTES
    arrived = asyncio.Event()

    async def read(scope, receive, send) -> None:
        await arrived.wait()
        await PlainTextResponse("stored")(scope, receive, send)

    async def statuses():
        bounded = BoundedUploads(read, 10 * most, 0.0, dict)
        first = asyncio.create_task(_put(bounded, "tab 1", None, "ann", most))
        await asyncio.sleep(0)
        second = await _put(bounded, "tab 2", None, "ann", most)
        other = asyncio.create_task(_put(bounded, "tab 3", None, "ben", most))
        await asyncio.sleep(0)
        arrived.set()
        return await first, second, await other

    assert asyncio.run(statuses()) == (200, 503, 200)


async def _put(bounded, session, receive, user=None, size=10) -> int:
    """Return the status of the answer to an upload of a user."""
    scope = {
        "type": "http", "method": "PUT", "path": f"{UPLOADS}{session}/file",
        "headers": [(b"content-length", str(size).encode())],
    } | ({} if user is None else {USER: user})  # fmt: skip
    statuses = []

    async def send(message) -> None:
        statuses.append(message.get("status"))

    await bounded(scope, receive, send)
    return statuses[0]
