"""Changes of the session's state that belong together.

A click of the user, or a component that sends a value, begins the next run of the page's script as soon as
the current one draws something, or reads or writes the state of the session. That is also the case in the
middle of a callback, so a new model could be left with the rules of the previous one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from streamlit.runtime.scriptrunner import get_script_run_ctx

# What the state calls before each access, to begin a run that waits. Streamlit has no public name for it.
_BEFORE_ACCESS = "_yield_callback"


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Let the next run of the script wait until all that the `with` block changes in the state is changed.

    The block draws nothing and waits for nothing. Also a decorator: `@uninterrupted()`.
    """
    context = get_script_run_ctx(suppress_warning=True)
    state = None if context is None else context.session_state
    before = getattr(state, _BEFORE_ACCESS, None)
    if before is None:
        yield
        return
    # The state takes assignments as values of the session.
    object.__setattr__(state, _BEFORE_ACCESS, lambda: None)
    try:
        yield
    finally:
        object.__setattr__(state, _BEFORE_ACCESS, before)
