"""Values of the session's state without a copy of all of it.

Several widgets of Streamlit copy the state, only to look up whether the value of their own key is None. With
a hundred keys and fifteen such widgets, the copies took a quarter of a run of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from streamlit.runtime.state import SessionState

_copied: Callable[[SessionState], dict[str, Any]] = vars(SessionState)["filtered_state"].fget


class _Values(Mapping[str, Any]):
    """The keyed values of a state. Only those who iterate over them copy them."""

    def __init__(self, state: SessionState) -> None:
        self._state = state

    def __getitem__(self, key: str) -> Any:
        return self._state[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._copy())

    def __len__(self) -> int:
        return len(self._copy())

    def _copy(self) -> dict[str, Any]:
        return _copied(self._state)


def install() -> None:
    """Let all sessions of this process look values up."""
    SessionState.filtered_state = property(_Values)  # type: ignore[assignment, method-assign]
