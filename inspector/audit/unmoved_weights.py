"""Weights that are still on the devices of another copy, although the rest of their tree has moved."""

from collections import defaultdict
from collections.abc import Iterator

from inspector.audit.context import finding
from inspector.records.snapshot import Array, Finding, Mesh, Snapshot
from inspector.sharding.folding import fold
from inspector.text.formatting import and_text, bytes_text, counted, devices_text

CODE = "weights-not-moved"
_MOST_NAMES = 4
_MOST_TREES = 50  # that are compared with one

Places = frozenset[int]


def findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield a warning per tree of which some arrays are on the devices of a tree with the same names.

    Most of its arrays must be on other devices. A model whose layers are on several meshes has no other tree
    with all of them on one.
    """
    trees = _trees(snapshot)
    sizes = {
        tree: {(path, array.bytes) for path, (array, _) in placed.items()} for tree, placed in trees.items()
    }
    # The trees that are on the same devices as a whole, by these and each array.
    whole: dict[tuple[Places, tuple[str, int | None]], list[str]] = defaultdict(list)
    for tree, placed in trees.items():
        if len({places for _, places in placed.values()}) == 1:
            for path, (array, places) in placed.items():
                whole[places, (path, array.bytes)].append(tree)
    for name, placed in trees.items():
        by_places: dict[Places, list[str]] = defaultdict(list)
        for path, (_, places) in placed.items():
            by_places[places].append(path)
        if len(by_places) != 2:
            continue
        (own, most), (elsewhere, few) = sorted(by_places.items(), key=lambda pair: -len(pair[1]))
        if not own.isdisjoint(elsewhere) or len(few) >= len(most):
            continue
        # Another tree with arrays of the same names and sizes, all on these devices.
        alike = min((whole[elsewhere, size] for size in sizes[name]), key=len)
        source = next((tree for tree in alike[:_MOST_TREES] if sizes[name] <= sizes[tree]), None)
        if source is None:
            continue
        arrays = [placed[path][0] for path in few]
        names = and_text([array.path for array in arrays[:_MOST_NAMES]])
        if len(arrays) > _MOST_NAMES:
            names += f" and {counted(len(arrays) - _MOST_NAMES, 'other')}"
        size = bytes_text(sum(array.bytes or 0 for array in arrays))
        verb = "is" if len(arrays) == 1 else "are"
        message = (
            f"{names} ({size}) {verb} on {_devices(elsewhere)}, like {source}. "
            f"The other {counted(len(most), 'array')} of {name} are on {_devices(own)}: "
            f"{counted(len(arrays), 'array')} did not move with them."
        )
        remedy = (
            f"Place each new array as the one of {name} that it replaces: `jax.device_put(new, "
            "old.sharding)`."
        )
        yield finding("warning", CODE, message, folds=fold(arrays), remedy=remedy)


def applies(snapshot: Snapshot) -> bool:
    """Return whether arrays are on several meshes with different devices."""
    meshes = [mesh for mesh in (snapshot.mesh, *snapshot.other_meshes) if mesh is not None]
    return len({frozenset(mesh.devices) for mesh in meshes}) > 1


def _trees(snapshot: Snapshot) -> dict[str, dict[str, tuple[Array, Places]]]:
    """Return the arrays by the first key of their path, and then by the rest of it."""
    trees: dict[str, dict[str, tuple[Array, Places]]] = defaultdict(dict)
    meshes: list[Mesh | None] = [snapshot.mesh, *snapshot.other_meshes]
    # One set for all arrays of a mesh, which can have 131,072 devices.
    on_meshes = [None if mesh is None else frozenset(mesh.devices) for mesh in meshes]
    for array in snapshot.arrays:
        tree, _, rest = array.path.partition("/")
        places = on_meshes[0 if array.mesh is None else array.mesh + 1]
        if array.shards is not None:
            places = frozenset(shard.device for shard in array.shards)
        elif array.spec is None:
            continue
        if rest and array.shape and places is not None:
            trees[tree][rest] = array, places
    return trees


def _devices(places: Places) -> str:
    return f"device{'s' if len(places) > 1 else ''} {devices_text(sorted(places))}"
