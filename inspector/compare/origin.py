"""The source, model and sizes of a Snapshot, and whether its layout can be built."""

from __future__ import annotations

import json

from inspector.core.snapshot import Snapshot
from inspector.core.sources import SOURCES
from inspector.layout.plan import INDIVISIBLE
from inspector.machines import targets
from inspector.machines.hardware import Chip


def text(snapshot: Snapshot) -> str:
    """Return the source in words: `compiled for tpu:v5p:4x4x4`, `imported from a MaxText golden`."""
    kind, target = snapshot.source.kind, snapshot.source.target
    if kind in targets.KINDS:
        return f"compiled for {target or kind}"
    return SOURCES[kind].made.partition(",")[0]


def model(snapshot: Snapshot) -> str | None:
    """Return the model's name, or None if the Snapshot does not record it."""
    name = (snapshot.layout or {}).get("model")
    return name if isinstance(name, str) else None


def sizes(snapshot: Snapshot) -> dict[str, str] | None:
    """Return the model's sizes as text, or None if the Snapshot does not record them."""
    plain = (snapshot.layout or {}).get("sizes")
    if not isinstance(plain, dict):
        return None
    return {
        str(name): value if isinstance(value, str) else json.dumps(value)
        for name, value in plain.items()
    }


def chip(snapshot: Snapshot, chosen: Chip | None) -> Chip | None:
    """Return the chosen chip, or else the chip that the Snapshot was compiled for or ran on."""
    return chosen or targets.chip_of(snapshot)


def rejection(snapshot: Snapshot) -> str:
    """Return why JAX rejects the layout, such as `batch of size 8 is not divisible by 16`, or "".

    Figures of such a layout are those of a job that cannot start, so they are not better than others.
    """
    found = (each.message for each in snapshot.findings if each.code == INDIVISIBLE)
    return next(found, "")
