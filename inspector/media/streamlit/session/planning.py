"""The plan of a layout for a page."""

from collections.abc import Callable

import streamlit as st

from inspector.core.errors import InvalidInput
from inspector.core.once import NewestResults
from inspector.core.snapshot import Snapshot
from inspector.layout import Layout
from inspector.layout.plan import plan
from inspector.media.streamlit.page.plain_text import plain
from inspector.media.streamlit.session import asked
from inspector.service.inspection import Inspection

_PLAN = "plan"
_MOST_SNAPSHOTS = 32
# The content of the pages of all sessions: plans, and Snapshots with their additions.
snapshots = NewestResults[Snapshot](_MOST_SNAPSHOTS)


def planned(
    service: Inspection, layout: Layout, before_tracing: Callable[[], None] = lambda: None
) -> Snapshot | None:
    """Return the planned Snapshot. If the model cannot be traced, draw the error and return None."""
    try:
        return traced(service, layout, "Tracing the model with JAX …", before_tracing)
    except InvalidInput as error:
        request = service.state(layout)
        if not asked.show_failure(_PLAN, request.key, request):
            st.error(plain(str(error)), icon=":material/error:")
        return None


def traced(
    service: Inspection,
    layout: Layout,
    message: str,
    before_tracing: Callable[[], None] = lambda: None,
) -> Snapshot:
    """Return the planned Snapshot. If its shapes are unknown, wait until JAX has traced the model.

    Args:
      message: the text of the page while it waits.
      before_tracing: called before it waits.

    Raises:
      InvalidInput: the model cannot be traced with these sizes.
    """
    request = service.state(layout)
    if request.known() is None:
        before_tracing()
    outcome = asked.waited(_PLAN, request, message)
    shapes = outcome.result
    if shapes is None:
        raise InvalidInput(outcome.failure or "the model was not traced")
    return snapshots.of(layout.key(), (shapes,), lambda: plan(layout, shapes))
