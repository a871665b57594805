"""A browser session of the dashboard without a browser: Streamlit's protocol over its web socket.

It draws nothing, so one process has as many sessions as it likes. Like a browser, it sends the widgets that
changed with the URL, reruns fragments as often as the page asks for, and keeps the elements of the page.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import websockets
from streamlit.proto.Alert_pb2 import Alert
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Common_pb2 import FileURLs
from streamlit.proto.Element_pb2 import Element
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from streamlit.web.server.starlette.starlette_server_config import XSRF_COOKIE_NAME

PATIENCE = 240.0  # seconds
_MOST_BYTES = 2**28  # of one message


class PageSession:
    """One open page. Use `opened` to make one."""

    def __init__(self, socket: websockets.ClientConnection, page: str, query: str) -> None:
        self._socket = socket
        self._page = page
        self._query = query
        self._page_hash = ""
        self._address = ""
        self._urls: list[FileURLs] = []  # of the last request for an upload
        self._elements: dict[tuple[int, ...], tuple[str, Element]] = {}
        self._stale: set[tuple[int, ...]] = set()  # elements that the present run has not drawn yet
        self._values: dict[str, WidgetState] = {}  # of the widgets of the page, by id
        self._timers: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Condition()
        self._receiver: asyncio.Task[None] | None = None
        self.exceptions: list[str] = []
        self.finished = 0  # runs of the script

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, url: str, page: str = "", query: str = "") -> Any:
        """Open a page, with the parameters of its URL, and close it at the end.

        Args:
          url: of the server, such as http://127.0.0.1:8501.
        """
        address = url.replace("http", "ws", 1) + "/_stcore/stream"
        async with websockets.connect(
            address,
            subprotocols=[websockets.Subprotocol("streamlit")],
            max_size=_MOST_BYTES,
            open_timeout=PATIENCE,
        ) as socket:
            session = cls(socket, page, query)
            session._address = url
            session._receiver = asyncio.create_task(session._receive())
            try:
                await session.rerun()
                yield session
            finally:
                for task in (*session._timers.values(), session._receiver):
                    task.cancel()

    async def rerun(self, *changed: WidgetState) -> None:
        """Send the widgets that changed, and wait for the end of the script."""
        before = self.finished
        await self._send(changed)
        await self.until(lambda: self.finished > before, "the end of the script")

    async def type(self, key: str, text: str) -> None:
        """Change a text field."""
        await self.rerun(WidgetState(id=self.widget(key), string_value=text))

    async def click(self, key: str, wait: bool = True) -> None:
        """Click a button, which may be in a fragment."""
        state = WidgetState(id=self.widget(key), trigger_value=True)
        if wait:
            await self.rerun(state)
        else:
            await self._send((state,), self._fragment_of(key))

    async def upload(self, key: str, file: Path) -> int:
        """Upload a file as a browser does, and send the field. Return the status of the answer.

        The status is not 204 if the server refuses the upload. The field is sent only if it is.
        """
        request = BackMsg()
        request.file_urls_request.request_id = str(file)
        request.file_urls_request.file_names.append(file.name)
        self._urls.clear()
        await self._socket.send(request.SerializeToString())
        await self.until(lambda: self._urls, "the address of the upload")
        urls = self._urls[0]
        address = self._address + urls.upload_url
        async with httpx.AsyncClient(timeout=PATIENCE) as client:
            health = await client.get(f"{self._address}/_stcore/health")
            token = health.cookies[XSRF_COOKIE_NAME].strip('"')
            headers = {"X-Xsrftoken": token, "Cookie": f"{XSRF_COOKIE_NAME}={token}"}
            with file.open("rb") as stream:
                answer = await client.put(address, files={"file": stream}, headers=headers)
        if answer.status_code == 204:
            state = WidgetState(id=self.widget(key))
            info = state.file_uploader_state_value.uploaded_file_info.add()
            info.name, info.size, info.file_id = file.name, file.stat().st_size, urls.file_id
            info.file_urls.CopyFrom(urls)
            await self._send((state,))
        return answer.status_code

    async def until(self, condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
        """Wait until a condition on the page holds.

        Raises:
          TimeoutError: it does not within `seconds`.
        """
        end = time.monotonic() + seconds
        async with self._changed:
            while not condition():
                if self._receiver is not None and self._receiver.done():
                    self._receiver.result()
                    raise ConnectionError(f"{what}: the server closed the connection")
                left = end - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"{what}: not within {seconds:g} s")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), min(left, 1.0))

    def widget(self, key: str) -> str:
        """Return the id of the widget with this key.

        Raises:
          KeyError: the page has no such widget.
        """
        for _, element in self.elements():
            found = _widget_id(element)
            if found is not None and found.endswith(f"-{key}"):
                return found
        raise KeyError(key)

    def has(self, key: str) -> bool:
        """Return whether the page has a widget with this key."""
        with contextlib.suppress(KeyError):
            return bool(self.widget(key))
        return False

    def widget_keys(self) -> list[str]:
        """Return the keys of all widgets."""
        ids = [_widget_id(element) for _, element in self.elements()]
        return [one.split("-", 2)[2] for one in ids if one is not None and one.count("-") >= 2]

    def elements(self) -> Iterator[tuple[str, Element]]:
        """Return the elements of the page, each with its fragment, in their order."""
        return (self._elements[path] for path in sorted(self._elements))

    def texts(self) -> str:
        """Return the text of the page, without figures and tables."""
        lines = []
        for _, element in self.elements():
            kind = element.WhichOneof("type")
            shown = getattr(element, str(kind))
            lines += [
                str(getattr(shown, name))
                for name in ("body", "text", "label")
                if isinstance(getattr(shown, name, None), str)
            ]
        return "\n".join(lines)

    def progress(self) -> list[str]:
        """Return the texts of the progress bars of the page."""
        return [
            element.progress.text
            for _, element in self.elements()
            if element.WhichOneof("type") == "progress"
        ]

    def errors(self) -> list[str]:
        """Return the texts of the red boxes of the page."""
        return [
            element.alert.body
            for _, element in self.elements()
            if element.WhichOneof("type") == "alert" and element.alert.format == Alert.ERROR
        ]

    def _fragment_of(self, key: str) -> str:
        wanted = self.widget(key)
        return next(name for name, element in self.elements() if _widget_id(element) == wanted)

    async def _send(self, changed: tuple[WidgetState, ...] = (), fragment: str = "") -> None:
        message = BackMsg()
        state = message.rerun_script
        state.query_string = self._query
        state.page_script_hash = self._page_hash
        state.page_name = "" if self._page_hash else self._page
        state.fragment_id = fragment
        state.is_auto_rerun = bool(fragment) and not changed
        for one in changed:
            if not one.trigger_value:
                self._values[one.id] = one
        state.widget_states.widgets.extend([*self._values.values(), *changed])
        await self._socket.send(message.SerializeToString())

    async def _receive(self) -> None:
        with contextlib.suppress(websockets.ConnectionClosed):
            async for frame in self._socket:
                message = ForwardMsg()
                assert isinstance(frame, bytes)
                message.ParseFromString(frame)
                self._handle(message)
                async with self._changed:
                    self._changed.notify_all()
        async with self._changed:
            self._changed.notify_all()

    def _handle(self, message: ForwardMsg) -> None:
        kind = message.WhichOneof("type")
        if kind == "new_session":
            self._begin(message)
        elif kind == "page_info_changed":
            self._query = message.page_info_changed.query_string
        elif kind == "file_urls_response":
            self._urls[:] = message.file_urls_response.file_urls
        elif kind == "auto_rerun":
            fragment = message.auto_rerun.fragment_id
            if fragment not in self._timers:
                self._timers[fragment] = asyncio.create_task(
                    self._tick(fragment, message.auto_rerun.interval)
                )
        elif kind == "stop_auto_rerun":
            for fragment in message.stop_auto_rerun.fragment_ids:
                if fragment in self._timers:
                    self._timers.pop(fragment).cancel()
        elif kind == "script_finished":
            if message.script_finished != ForwardMsg.FINISHED_EARLY_FOR_RERUN:
                self.finished += 1
                for path in self._stale:
                    del self._elements[path]
                self._stale = set()
        elif kind == "delta" and message.delta.WhichOneof("type") == "new_element":
            element = message.delta.new_element
            path = tuple(message.metadata.delta_path)
            self._elements[path] = (message.delta.fragment_id, element)
            self._stale.discard(path)
            self._keep_value(element)
            if element.WhichOneof("type") == "exception":
                self.exceptions.append(f"{element.exception.type}: {element.exception.message}")

    def _keep_value(self, element: Element) -> None:
        """Keep the value that the page gives to a new widget, or sets in one that is there."""
        shown = getattr(element, str(element.WhichOneof("type")))
        key = _widget_id(element)
        if key is None or (key in self._values and not shown.set_value):
            return
        state = WidgetState(id=key)
        match element.WhichOneof("type"):
            case "text_input" | "text_area":
                state.string_value = shown.value if shown.set_value else shown.default
            case "number_input":
                state.double_value = shown.value if shown.set_value else shown.default
            case "checkbox":
                state.bool_value = shown.value if shown.set_value else shown.default
            case "selectbox":
                chosen = [shown.options[shown.default]] if shown.HasField("default") else []
                state.string_value = shown.raw_value if shown.set_value else "".join(chosen)
            case "multiselect" | "button_group":
                options = [getattr(one, "content", one) for one in shown.options]
                chosen = [options[place] for place in shown.default]
                state.string_array_value.data.extend(shown.raw_values if shown.set_value else chosen)
            case _:
                return
        self._values[key] = state

    def _begin(self, message: ForwardMsg) -> None:
        """A run of the script or of fragments begins: what it draws replaces what was there."""
        fragments = set(message.metadata.run.fragment_ids)
        self._stale = {path for path, one in self._elements.items() if not fragments or one[0] in fragments}
        if fragments:
            return
        self._page_hash = message.new_session.page_script_hash
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    async def _tick(self, fragment: str, seconds: float) -> None:
        with contextlib.suppress(websockets.ConnectionClosed):
            while True:
                await asyncio.sleep(seconds)
                await self._send(fragment=fragment)


def _widget_id(element: Element) -> str | None:
    shown = getattr(element, str(element.WhichOneof("type")))
    found = getattr(shown, "id", None)
    return found if isinstance(found, str) and found.startswith("$$") else None
