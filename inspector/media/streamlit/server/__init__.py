"""What the Streamlit server does when it starts and stops."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import streamlit as st

from inspector import layout as layouts
from inspector.core.errors import InvalidInput
from inspector.service import inspection, own_model_registration

PAGES = Path(__file__).parents[1] / "entry.py"


@contextlib.asynccontextmanager
async def lifespan(_: st.App) -> AsyncIterator[None]:
    """Register the models of the command line, start JAX in a worker, and end all workers at the end."""
    own_model_registration.register_all(sys.argv[1:])
    service = inspection.shared()
    threading.Thread(target=_plan_first_layout, args=(service,), daemon=True).start()
    # Plotly fails if it makes a figure while another session's thread imports pandas.
    importlib.import_module("pandas")
    try:
        yield
    finally:
        service.close()


def _plan_first_layout(service: inspection.Inspection) -> None:
    # An error here is not shown: the page makes the same plan and reports its errors.
    with contextlib.suppress(InvalidInput, RuntimeError):
        service.plan(layouts.parse(layouts.opening_fields()).unwrap())
