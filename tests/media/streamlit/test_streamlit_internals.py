"""Private names of Streamlit: a sentence says which one moved, and what no longer works."""

from __future__ import annotations

import ast
import importlib
import logging
from pathlib import Path

import pytest
import streamlit as st
from streamlit import config
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.state.safe_session_state import SafeSessionState
from streamlit.runtime.state.session_state import SessionState
from streamlit.runtime.uploaded_file_manager import UploadedFileRec
from streamlit.testing.v1 import AppTest
from streamlit.web.server.starlette import starlette_routes, starlette_server

from inspector.media.streamlit import streamlit_internals
from inspector.media.streamlit.server import middleware
from inspector.text.errors import InvalidInput
from tests.paths import ROOT

FILE = Path(streamlit_internals.__file__)
FOLDER = "`dashboard` takes settings and secrets from the current folder"
OPTIONS = "`dashboard` cannot check the options that it passes on"
SOCKET = "a team server cannot listen on a Unix socket"
SESSIONS = "jobs of closed tabs go on"
TYPES = "nothing can be imported"
# (module, name in it, what no longer works)
NAMES = [
    ("streamlit.delta_generator", "DeltaGenerator", TYPES),
    ("streamlit.elements.lib.mutable_tab_container", "TabContainer", TYPES),
    ("streamlit.navigation.page", "StreamlitPage", TYPES),
    ("streamlit.runtime.uploaded_file_manager", "UploadedFile", TYPES),
    ("streamlit.runtime.scriptrunner", "get_script_run_ctx", "users own no jobs"),
    ("streamlit.runtime", "Runtime.is_active_session", SESSIONS),
    ("streamlit.runtime", "Runtime.close_session", "closed tabs keep their memory"),
    ("streamlit.runtime", "exists", SESSIONS),
    ("streamlit.runtime.state", "SessionState", "widgets copy the state of a session"),
    ("streamlit.runtime.state", "SessionState.filtered_state", "widgets copy the state of a session"),
    ("streamlit.runtime", "get_instance", SESSIONS),
    ("streamlit.config", "get_config_files", FOLDER),
    ("streamlit.file_util", "get_streamlit_file_path", FOLDER),
    ("streamlit.file_util", "get_project_streamlit_file_path", FOLDER),
    ("streamlit.web.cli", "main", "the server cannot start"),
    ("streamlit.web.cli", "main_run.make_context", OPTIONS),
    ("streamlit.web.server.starlette.starlette_server", "_bind_server_socket", SOCKET),
    ("streamlit.web.server.starlette.starlette_server", "_server_address_is_unix_socket", SOCKET),
    ("streamlit.web.server.starlette.starlette_websocket", "is_host_allowed", "no host name is refused"),
]


@pytest.mark.parametrize(
    ("module", "name", "consequence"), NAMES, ids=[f"{module}.{name}" for module, name, _ in NAMES]
)
def test_a_private_name_is_where_it_was(module: str, name: str, consequence: str) -> None:
    value = importlib.import_module(module)
    for part in name.split("."):
        moved = f"Streamlit {st.__version__} has no {module}.{name}, so {consequence}"
        assert hasattr(value, part), moved
        value = getattr(value, part)


def test_each_name_that_is_imported_is_tested_here() -> None:
    tested = {f"{module}.{name}" for module, name, _ in NAMES} | {module for module, _, _ in NAMES}
    imported = {
        f"{node.module}.{alias.name}"
        for node in ast.walk(ast.parse(FILE.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "streamlit"
        for alias in node.names
    }
    assert len(imported) > 10 and imported <= tested


def test_no_other_file_imports_private_modules_of_streamlit() -> None:
    private = []
    for path in (ROOT / "inspector").rglob("*.py"):
        if path == FILE:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names if alias.name != "streamlit"]
            else:
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            private += [(path, name) for name in names if name.partition(".")[0] == "streamlit"]
    assert not private


# --- What they do -------------------------------------------------------------------------------------------


def test_the_state_of_a_session_calls_what_begins_the_next_run() -> None:
    calls: list[None] = []
    state = SafeSessionState(SessionState(), lambda: calls.append(None))
    state["a"] = 1
    assert calls and streamlit_internals._BEFORE_ACCESS in vars(state), (
        f"a click can interrupt what a callback changes in Streamlit {st.__version__}"
    )


SESSION = """
import streamlit as st
from inspector.media.streamlit import streamlit_internals
st.text(streamlit_internals.session_id())
st.text(streamlit_internals.is_history_navigation())
"""


def test_a_script_knows_its_session() -> None:
    assert streamlit_internals.session_id() == "" and not streamlit_internals.is_history_navigation()
    first, second = (text.value for text in AppTest.from_string(SESSION).run().text)
    assert first == "test session id" and second == "False"


def test_a_session_without_the_callback_is_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Context:
        session_state = object()

    monkeypatch.setattr(streamlit_internals, "get_script_run_ctx", lambda **_: Context())
    streamlit_internals._warn_of_interruptions.cache_clear()
    for _ in range(2):
        with streamlit_internals.uninterrupted():
            pass
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


def test_uploads_are_counted_and_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = MemoryUploadedFileManager("/upload")
    for session, file, size in (("a", "1", 3), ("a", "2", 0), ("b", "1", 5)):
        stored.add_file(session, UploadedFileRec(file, "name", "text/plain", b"x" * size))

    class Instance:
        uploaded_file_mgr = stored

    monkeypatch.setattr(streamlit_internals.runtime, "get_instance", Instance)
    assert streamlit_internals.stored_uploads() == {("a", "1"): 3, ("a", "2"): 0, ("b", "1"): 5}
    streamlit_internals.drop_upload("a", "1")
    assert streamlit_internals.stored_uploads() == {("a", "2"): 0, ("b", "1"): 5}


def test_paths_of_the_server_are_those_of_streamlit() -> None:
    routes = [
        *starlette_routes.create_health_routes(None, ""),  # type: ignore[arg-type]
        *starlette_routes.create_upload_routes(None, None, ""),  # type: ignore[arg-type]
    ]
    served = [getattr(route, "path", "") for route in routes]
    assert middleware.HEALTH in served, f"Streamlit {st.__version__} has no {middleware.HEALTH}"
    assert f"{middleware.UPLOADS}{{session_id}}/{{file_id}}" in served


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--server.port", "8000"], None),
        (["--server.nothing", "1"], "--server.nothing"),
        (["--server.port", "x"], "--server.port"),
        (["--help"], "only prints"),
        (["left", "over"], "left over"),
    ],
)
def test_options_of_the_command_are_checked(options: list[str], fault: str | None) -> None:
    if fault is None:
        streamlit_internals.check_run_options(options)
        return
    with pytest.raises(InvalidInput, match=fault):
        streamlit_internals.check_run_options(options)


def test_only_settings_of_the_current_folder_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = config.get_config_files
    here = [file for file in before("config.toml") if file.startswith(str(tmp_path))]
    assert here
    monkeypatch.setattr(config, "get_config_files", before)
    monkeypatch.setattr(streamlit_internals.cli, "main", lambda **_: None)
    for name in ("_bind_server_socket", "_server_address_is_unix_socket"):  # it replaces them
        monkeypatch.setattr(starlette_server, name, getattr(starlette_server, name))
    streamlit_internals.run_without_current_folder()
    assert config.get_config_files("config.toml") == [
        file for file in before("config.toml") if file not in here
    ]
