"""The back and forward buttons of the browser.

The browser applies a URL after it has drawn the figures. A click before that sends the previous URL, as the
back button does. Only the browser knows which of the two it was.
"""

from __future__ import annotations

from streamlit.runtime.scriptrunner import get_script_run_ctx


def pressed() -> bool:
    """Return whether one of them caused this run of the page's script."""
    context = get_script_run_ctx()
    return context is not None and context.is_history_navigation
