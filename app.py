"""Sharding Inspector: `streamlit run app.py`."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import streamlit as st

from inspector import layout as layouts
from inspector.core.errors import InvalidInput
from inspector.service import inspection, own_model_registration


@contextlib.asynccontextmanager
async def lifespan(_: st.App) -> AsyncIterator[None]:
    """While the server runs: JAX is started before the first page asks, workers end with the server.

    Models of one's own are read first, from what stands after `streamlit run app.py --`.
    """
    own_model_registration.register_all(sys.argv[1:])
    service = inspection.shared()
    threading.Thread(target=_prepare, args=(service,), daemon=True).start()
    try:
        yield
    finally:
        service.close()


def _prepare(service: inspection.Inspection) -> None:
    # A server that is stopped at once, or a planner that fails, is no matter yet: the page will ask.
    with contextlib.suppress(InvalidInput, RuntimeError):
        service.plan(layouts.parse(layouts.opening_fields()).unwrap())


app = st.App(
    Path(__file__).parent / "inspector" / "media" / "streamlit" / "entry.py", lifespan=lifespan
)
