"""Download buttons. A click does not rerun the page."""

from collections.abc import Callable
from typing import Any

import streamlit as st

from inspector.records import snapshot as snapshots
from inspector.records.snapshot import Snapshot


def draw(label: str, data: str | Callable[[], Any], file_name: str, key: str, **settings: Any) -> None:
    """Draw a button for one file, which is JSON unless `mime` says otherwise."""
    defaults = {"mime": "application/json", "type": "tertiary", "icon": ":material/download:"}
    st.download_button(label, data, file_name, key=key, on_click="ignore", **(defaults | settings))


def of_snapshot(snapshot: Snapshot, file_name: str, key: str, help: str) -> None:
    """Draw the button for a Snapshot."""
    draw("Snapshot", lambda: snapshots.dumps(snapshot), file_name, key, help=help)
