"""The groups of arrays with their names in figures and sentences, in the order in which they are shown.

A new group is added here and to `Group` in `inspector.records.snapshot`. Values that only a program has,
such as temporaries, have separate groups.
"""

from inspector.records.snapshot import Group, UseGroup

ARRAY_GROUPS: dict[str, str] = {
    "params": "parameters",
    "opt_state": "optimizer state",
    "other": "unknown role",
    "batch": "batch",
    "cache": "caches",
    "output": "output",
    "activation": "activations",
    "gradient": "gradients",
}

# The groups of the values in memory while a program runs, in the order in which they are stacked.
USE_GROUPS: dict[UseGroup, str] = {
    "params": ARRAY_GROUPS["params"],
    "opt_state": ARRAY_GROUPS["opt_state"],
    "other": ARRAY_GROUPS["other"],
    "batch": ARRAY_GROUPS["batch"],
    "cache": ARRAY_GROUPS["cache"],
    "output": "memory of outputs",  # reserved for the whole program: other values can be in it before
    "constant": "constants",
    "activation": ARRAY_GROUPS["activation"],
    "gradient": ARRAY_GROUPS["gradient"],
    "collective": "buffers of collectives",
    "temporary": "temporaries",
}

# Keys of a path that name a group, by how certain they are. MaxText and Orbax write them in quotes.
_KEYS: tuple[dict[str, Group], ...] = (
    {"params": "params", "opt_state": "opt_state"},
    {"opt": "opt_state", "optimizer": "opt_state", "optimizer_state": "opt_state"},
)
_QUOTES = ".[]'\""


def certain_group(path: str) -> Group | None:
    """Return the group of the first key that is `params` or `opt_state`, or None."""
    return _group(path, _KEYS[0])


def group_of_path(path: str) -> Group | None:
    """Return the group that the keys of a path name, or None. `params` and `opt_state` come first."""
    return certain_group(path) or _group(path, _KEYS[1])


def _group(path: str, keys: dict[str, Group]) -> Group | None:
    names = (key.strip(_QUOTES) for key in path.split("/"))
    return next((keys[name] for name in names if name in keys), None)
