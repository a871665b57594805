"""What the Streamlit server does when it starts and stops."""

from __future__ import annotations

import contextlib
import importlib
import resource
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import streamlit as st

from inspector import layout as layouts
from inspector.core.errors import InvalidInput
from inspector.service import inspection, own_model_registration

OPEN_FILES = 8192  # a session with a page has about three
PAGES = Path(__file__).parents[1] / "entry.py"


@contextlib.asynccontextmanager
async def lifespan(_: st.App) -> AsyncIterator[None]:
    """Register the models of the command line, start JAX in a worker, and end all workers at the end."""
    own_model_registration.register_all(sys.argv[1:])
    _allow_open_files()
    service = inspection.shared()
    threading.Thread(target=_plan_first_layout, args=(service,), daemon=True).start()
    # Plotly fails if it makes a figure while another session's thread imports pandas.
    importlib.import_module("pandas")
    try:
        yield
    finally:
        service.close()


def _allow_open_files() -> None:
    """Raise the limit on open files. macOS allows 256, and every session has several."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # the system can have a lower limit
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _plan_first_layout(service: inspection.Inspection) -> None:
    # An error here is not shown: the page makes the same plan and reports its errors.
    with contextlib.suppress(InvalidInput, RuntimeError):
        service.plan(layouts.parse(layouts.opening_fields()).unwrap())
