"""The source, model and sizes of a Snapshot."""

import json

from inspector.core.snapshot import Snapshot
from inspector.core.sources import SOURCES
from inspector.core.statistics import sum_known
from inspector.machines import targets


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
        str(name): value if isinstance(value, str) else json.dumps(value) for name, value in plain.items()
    }


def parameters(snapshot: Snapshot) -> int | None:
    """Return the number of parameters of the model, or None if it is unknown."""
    return sum_known(array.elements for array in snapshot.arrays if array.group == "params")
