"""Give arrays the same paths in Snapshots that name them differently, and plans the same programs.

A checkpoint of a Flax nnx state has the arrays at `…/kernel/value`, the live state at `…/kernel`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from inspector.core.snapshot import Snapshot

# The keys under which nnx variables keep their values.
_ENDS = ("/value", "/raw_value")


def aligned(snapshots: Sequence[Snapshot]) -> tuple[Snapshot, ...]:
    """Return the Snapshots, without the ends of nnx variables in paths that another one has without them.

    Plans keep the programs that all of them have: a page partitions the others later.
    """
    plans = [{program.name for program in one.programs} for one in snapshots if one.source.kind == "plan"]
    if common := set.intersection(*plans) if plans else set():
        snapshots = [
            replace(one, programs=tuple(program for program in one.programs if program.name in common))
            if one.source.kind == "plan" and not common.issuperset(program.name for program in one.programs)
            else one
            for one in snapshots
        ]
    paths = [{array.path for array in snapshot.arrays} for snapshot in snapshots]
    count = Counter(path for paths_of_snapshot in paths for path in paths_of_snapshot)
    found = []
    for snapshot, own in zip(snapshots, paths, strict=True):
        shorter = {
            path: path.removesuffix(end)
            for end in _ENDS
            for path in own
            if path.endswith(end) and path.removesuffix(end) not in own
        }
        names = {path: short for path, short in shorter.items() if count[short]}
        if names:
            arrays = tuple(
                replace(array, path=names.get(array.path, array.path)) for array in snapshot.arrays
            )
            snapshot = replace(snapshot, arrays=arrays)
        found.append(snapshot)
    return tuple(found)
