"""Common parts of the guide pages: fields, results of JAX, script and Snapshot."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import plotly.graph_objects as go
import streamlit as st

from inspector.jobs.request import Request
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.parts import chart, downloads
from inspector.media.streamlit.session import asked, kept_field
from inspector.records.snapshot import Snapshot

AXIS_NAMES_HELP = "One name for each mesh axis, joined by commas."
SPEC_HELP = "One entry for each dimension: a mesh axis, several axes joined by +, or None."

Result = TypeVar("Result")


class FormFields:
    """The fields of a page. The session keeps their values when another page is open."""

    def __init__(self, page: str, defaults: Mapping[str, Any]) -> None:
        self.page = page
        self.names = tuple(defaults)
        for name, default in defaults.items():
            st.session_state.setdefault(self.key(name), default)

    def key(self, name: str) -> str:
        return f"{self.page}:{name}"

    def __getitem__(self, name: str) -> Any:
        return st.session_state[self.key(name)]

    def __setitem__(self, name: str, value: Any) -> None:
        """Set a field; only in a callback or before the field is drawn."""
        st.session_state[self.key(name)] = value

    def texts(self) -> dict[str, str]:
        """Return the text of every field. A switch is `true` or `false`, an empty number field is empty."""
        return {name: _text(self[name]) for name in self.names}

    def draw(self, widget: Callable[..., Any], name: str, *arguments: Any, **settings: Any) -> Any:
        """Draw a field with a Streamlit function and return its value."""
        return kept_field.draw(widget, *arguments, key=self.key(name), **settings)

    def draw_mesh(
        self, widget: Callable[..., Any], label: str, change: Callable[..., None], help: str,
        *arguments: Any, **settings: Any,
    ) -> None:  # fmt: skip
        """Draw the field `mesh`. When it changes, `change` gets the arguments and these fields."""
        settings |= {"on_change": change, "args": (*arguments, self), "help": help}
        self.draw(widget, "mesh", label, **settings)


def result(name: str, request: Request[Result], message: str) -> Result | None:
    """Return the result of a request, or None after an error message. Show `message` while its job runs."""
    outcome = asked.waited(name, request, message)
    asked.show_failure(name, request.key, request)
    return outcome.result


def show_problems(problems: Mapping[str, str]) -> None:
    """Draw an error message for each wrong field."""
    for problem in problems.values():
        st.error(plain(problem), icon=":material/error:")


def draw_figures(figures: Mapping[str, go.Figure], keys: str, width_px: int) -> None:
    """Draw named figures in rows. `keys` is the key of each, with `{}` for its name."""
    # In a narrow window a horizontal container wraps; columns would not.
    with st.container(horizontal=True, gap="small"):
        for name, figure in figures.items():
            with st.container(width=width_px):
                chart.draw(figure, keys.format(name), alt=figure.layout.title.text or name)


def show_refusal(kind: str, message: str) -> None:
    """Draw an error message of JAX."""
    st.code(f"{kind}: {message}", language=None, wrap_lines=True)


def show_script(name: str, title: str, caption: str, script: str, snapshot: Snapshot) -> None:
    """Draw the script in an expander, and the download of the Snapshot."""
    with st.expander(title):
        st.caption(caption)
        st.code(script, language="python")
    download_snapshot(f"{name}:download", f"{name}.json", snapshot)


def download_snapshot(key: str, file_name: str, snapshot: Snapshot) -> None:
    """Draw the button that downloads a Snapshot."""
    help = "Download the figures of this page as Snapshot JSON."
    downloads.draw_snapshot(snapshot, file_name, key, help)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)
