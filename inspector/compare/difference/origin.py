"""How a Snapshot came to be, in a word, and what it is of."""

from __future__ import annotations

import json

from inspector.core.formatting import counted
from inspector.core.snapshot import Mesh, Snapshot
from inspector.machines import targets
from inspector.machines.hardware import Chip

_WORDS = {
    "plan": "planned",
    "cpu": "run",
    "tpu": "compiled",
    "gpu": "compiled",
    "capture": "captured",
}
IMPORTED = "imported"


def word(found: Snapshot) -> str:
    """`planned`, `run` (on emulated devices), `compiled` (not run), `captured` (a live job) or `imported`."""
    return _WORDS.get(found.source.kind, IMPORTED)


def text(found: Snapshot) -> str:
    """The word with the target or the kind of file: `compiled for tpu:v5p:4x4x4`, `imported from maxtext`."""
    kind, target = found.source.kind, found.source.target
    if kind in targets.KINDS:
        return f"compiled for {target or kind}"
    if kind == "cpu":
        return "run on emulated devices"
    if word(found) == IMPORTED:
        return f"imported from {kind}"
    return word(found)


def model(found: Snapshot) -> str | None:
    """The model's name; None where the Snapshot does not tell."""
    name = (found.layout or {}).get("model")
    return name if isinstance(name, str) else None


def sizes(found: Snapshot) -> dict[str, str] | None:
    """The sizes that the model was built with, as text; None where the Snapshot does not tell."""
    plain = (found.layout or {}).get("sizes")
    if not isinstance(plain, dict):
        return None
    return {
        str(name): value if isinstance(value, str) else json.dumps(value)
        for name, value in plain.items()
    }


def chip(found: Snapshot, chosen: Chip | None) -> Chip | None:
    """The chip to model it on: the chosen one, else the one that it was compiled for."""
    target = targets.compiled_for(found)
    return chosen or (target.chip if target else None)


def mesh_text(mesh: Mesh | None) -> str:
    """The axes larger than 1 with their sizes, `data 2 × model 4`; how many more there are of size 1."""
    if mesh is None:
        return "unknown"
    split = [f"{axis.name} {axis.size}" for axis in mesh.axes if axis.size > 1]
    whole = len(mesh.axes) - len(split)
    if not split:
        return "1 device" if mesh.size == 1 else "unknown"
    return " × ".join(split) + (
        f" (and {counted(whole, 'axis', 'axes')} of size 1)" if whole else ""
    )
