"""The source, model and sizes of a Snapshot."""

import json

from inspector.files.sources import SOURCES
from inspector.machines import targets
from inspector.records.snapshot import ArgumentUse, Snapshot
from inspector.records.statistics import sum_known
from inspector.sharding.once import once_per_snapshot


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


@once_per_snapshot
def parameters(snapshot: Snapshot) -> int | None:
    """Return the number of parameters of the model, or None if it is unknown.

    In a program of a user, names and types prove nothing. All that it takes as parameters must be used as
    weights, or be trained; then only those count that a program with an optimizer takes as weights, and no
    average of them that another one evaluates. An array that no program takes is none of them.
    """
    counted = [array for array in snapshot.arrays if array.group == "params"]
    if snapshot.layout is None and (uses := _uses(snapshot)):
        if trains_some(snapshot):
            uses = _uses(snapshot, training=True)
        elif any(uses.get(array.path, "weight") != "weight" for array in counted):
            return None
        counted = [array for array in counted if uses.get(array.path) == "weight"]
    return sum_known(array.elements for array in counted)


def trains_some(snapshot: Snapshot) -> bool:
    """Return whether a program updates its weights, and other arrays are weights or can be parameters."""
    uses = _uses(snapshot)
    if "moment" not in uses.values():
        return False
    trained = _uses(snapshot, training=True)
    return any(use == "weight" != trained.get(path) for path, use in uses.items()) or can_have_more(snapshot)


def can_have_more(snapshot: Snapshot) -> bool:
    """Return whether a program takes floating-point arrays of unknown use, which can be parameters."""
    uses = _uses(snapshot)
    return any(
        uses.get(array.path, "") is None and array.group in ("other", "params") and "float" in array.dtype
        for array in snapshot.arrays
    )


def takes_other_weights(snapshot: Snapshot) -> bool:
    """Return whether a program takes weights that are no array of the Snapshot, and are not counted."""
    paths = {array.path for array in snapshot.arrays}
    return any(use == "weight" and path not in paths for path, use in _uses(snapshot).items())


def _uses(snapshot: Snapshot, training: bool = False) -> dict[str, ArgumentUse | None]:
    """Return the use of each input of a program, by path; a proved use counts before an unknown one.

    training: of programs with a moment alone.
    """
    uses: dict[str, ArgumentUse | None] = {}
    for program in snapshot.programs:
        if training and not any(sharding.use == "moment" for sharding in program.shardings):
            continue
        for sharding in program.shardings:
            if sharding.role == "input":
                uses[sharding.path] = sharding.use or uses.get(sharding.path)
    return uses
