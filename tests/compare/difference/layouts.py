"""Layouts planned for tests: real models and rules, nothing compiled."""

from __future__ import annotations

import functools

from inspector import layout as layouts
from inspector.layout.plan import plan
from inspector.records.snapshot import Snapshot
from inspector.tracing.model.abstract import abstract_state

SMALL = {"batch": "8", "layers": "2", "depth": "64"}


def planned(**fields: str) -> Snapshot:
    """Return the plan of a small layout with the given fields."""
    return _planned(tuple(sorted((SMALL | fields).items())))


@functools.cache
def _planned(fields: tuple[tuple[str, str], ...]) -> Snapshot:
    layout = layouts.parse(dict(fields)).unwrap()
    return plan(layout, abstract_state(layout))
