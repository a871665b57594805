"""Everything that depends on names of Streamlit that its documentation lacks.

Public are the names of `streamlit` itself and of `streamlit.testing`. Streamlit changes the others without
notice, so all that this project needs are here. If one moves, a test fails with a sentence:
`tests/media/streamlit/test_streamlit_internals.py`. Tried on Streamlit 1.67.
"""

import contextlib
import functools
import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import click
from streamlit import config, file_util, runtime
from streamlit.delta_generator import DeltaGenerator as DeltaGenerator
from streamlit.elements.lib.mutable_tab_container import TabContainer as TabContainer
from streamlit.navigation.page import StreamlitPage as StreamlitPage
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.state import SessionState
from streamlit.runtime.uploaded_file_manager import UploadedFile as UploadedFile
from streamlit.web import cli
from streamlit.web.server.starlette import starlette_server, starlette_websocket

from inspector.text.errors import InvalidInput

_UNIX = "unix://"  # begins the address of a Unix socket
# Called by the state of a session before each access, to begin a run that waits.
_BEFORE_ACCESS = "_yield_callback"

_log = logging.getLogger(__name__)


# --- The session of the script that runs --------------------------------------------------------------------


def session_id() -> str:
    """Return the id of the browser session; empty outside of one."""
    context = get_script_run_ctx()
    return "" if context is None else context.session_id


def query_string() -> str:
    """Return the query of the page's URL, as the browser is to show it; empty outside of a session."""
    context = get_script_run_ctx()
    return "" if context is None else context.query_string


def is_history_navigation() -> bool:
    """Return whether the back or forward button of the browser has caused this run."""
    context = get_script_run_ctx()
    return context is not None and context.is_history_navigation


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let the next run of the script wait until all that the `with` block changes in the state is changed.

    A click of the user, or a component that sends a value, begins the next run of the page's script as soon
    as the current one draws something, or reads or writes the state of the session. That is also the case in
    the middle of a callback, so a new model could be left with the rules of the previous one.

    The block draws nothing and waits for nothing. Also a decorator: `@uninterrupted()`.
    """
    context = get_script_run_ctx(suppress_warning=True)
    state = None if context is None else context.session_state
    before = getattr(state, _BEFORE_ACCESS, None)
    if before is None:
        if state is not None:
            _warn_of_interruptions()
        yield
        return
    # The state takes assignments as values of the session.
    object.__setattr__(state, _BEFORE_ACCESS, lambda: None)
    try:
        yield
    finally:
        object.__setattr__(state, _BEFORE_ACCESS, before)


@functools.cache
def _warn_of_interruptions() -> None:
    _log.error("Streamlit's state has no %s: a click can interrupt what a callback changes.", _BEFORE_ACCESS)


_copied: Callable[[SessionState], dict[str, Any]] = vars(SessionState)["filtered_state"].fget


class _Values(Mapping[str, Any]):
    """The keyed values of a state. Only those who iterate over them copy them."""

    def __init__(self, state: SessionState) -> None:
        self._state = state

    def __getitem__(self, key: str) -> Any:
        return self._state[key]

    def __iter__(self) -> Iterator[str]:
        return iter(_copied(self._state))

    def __len__(self) -> int:
        return len(_copied(self._state))


def look_values_up() -> None:
    """Let all sessions of this process look values up, and not copy the whole state for it.

    Several widgets of Streamlit copy it only to look up whether the value of their own key is None. With a
    hundred keys and fifteen such widgets, the copies took a quarter of a run of the page.
    """
    SessionState.filtered_state = property(_Values)  # type: ignore[assignment, method-assign]


# --- Sessions and uploads of the server ---------------------------------------------------------------------


def is_connected(session: str) -> bool:
    """Return whether a browser session has an open web socket."""
    return runtime.exists() and runtime.get_instance().is_active_session(session)


def close_session(session: str) -> None:
    """Forget a browser session. Call it in the server's loop."""
    runtime.get_instance().close_session(session)


def stored_uploads() -> dict[tuple[str, str], int]:
    """Return the bytes of each upload that Streamlit holds, by session and file."""
    return {
        (session, file): len(record.data)
        for session, stored in list(_uploads().file_storage.items())
        for file, record in list(stored.items())
    }


def drop_upload(session: str, file: str) -> None:
    """Have Streamlit forget an upload. A later run of the page no longer gets it."""
    _uploads().remove_file(session, file)


def release(uploads: Iterable[UploadedFile]) -> None:
    """Have Streamlit forget uploads of this session, which a page has copied.

    Streamlit keeps them until the session ends, or until the browser says that the user removed the file.
    """
    if runtime.exists():
        for upload in uploads:
            drop_upload(session_id(), upload.file_id)


def _uploads() -> Any:
    """Return where Streamlit keeps uploads. The type that it declares lacks what its server has."""
    return runtime.get_instance().uploaded_file_mgr


# --- Requests -----------------------------------------------------------------------------------------------


def is_host_allowed(host: str | None) -> bool:
    """Return whether `server.allowedHosts` has the host of a request. Streamlit checks web sockets only."""
    return starlette_websocket.is_host_allowed(host)


# --- The command `streamlit run` ----------------------------------------------------------------------------


def check_run_options(options: Sequence[str]) -> None:
    """Check options for `streamlit run`, whose own errors show the usage of another program.

    Raises:
      InvalidInput: Streamlit has no such option, its value is not allowed, or an argument is left over.
    """
    try:
        context = cli.main_run.make_context("streamlit run", ["script.py", *options])
    except click.NoSuchOption as error:
        raise InvalidInput(
            f"{error.option_name} is an option neither of `dashboard` nor of `streamlit run`"
        ) from None
    except click.UsageError as error:
        raise InvalidInput(" ".join(error.format_message().split()).rstrip(".")) from None
    except click.exceptions.Exit:  # an option that prints something, such as --version
        raise InvalidInput("an option of Streamlit that only prints is not allowed") from None
    if context.params["args"]:
        raise InvalidInput(f"unrecognized arguments: {' '.join(context.params['args'])}")


def run_without_current_folder() -> None:
    """Run `streamlit` with the arguments of this process, and with no settings of the current folder."""
    all_files = config.get_config_files

    def without_current_folder(file_name: str) -> list[str]:
        home = file_util.get_streamlit_file_path(file_name)
        here = file_util.get_project_streamlit_file_path(file_name)
        return [file for file in all_files(file_name) if file == home or file != here]

    config.get_config_files = without_current_folder
    _allow_unix_sockets()
    cli.main(prog_name="streamlit")


def _allow_unix_sockets() -> None:
    """Let `server.address` be `unix://PATH`, which Streamlit prints, but refuses for `st.App`.

    Only the user and the group of the server can open the socket.
    """
    bind = starlette_server._bind_server_socket

    def bind_any(
        server_address: str, bind_address: str, port: int, backlog: int
    ) -> tuple[socket.socket, str]:
        if not server_address.startswith(_UNIX):
            return bind(server_address, bind_address, port, backlog)
        listening = socket.socket(socket.AF_UNIX)
        before = os.umask(0o117)
        try:
            listening.bind(server_address.removeprefix(_UNIX))
        finally:
            os.umask(before)
        listening.listen(backlog)
        listening.setblocking(False)
        return listening, bind_address

    starlette_server._bind_server_socket = bind_any
    starlette_server._server_address_is_unix_socket = lambda: False
