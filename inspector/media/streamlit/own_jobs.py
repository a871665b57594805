"""The jobs of this session's user, for the navigation."""

from __future__ import annotations

from inspector.media.streamlit import user
from inspector.service import jobs
from inspector.service.search import registry


def count() -> int:
    """Return how many jobs of the user run or wait, searches included."""
    return sum(one.owned for one in jobs.listed(user.service(), registry.shared()))
