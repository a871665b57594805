"""The groups of arrays: their headings and their colors, in the order in which they are shown.

A new group is added here and to `Group` in `inspector.core.snapshot`.
"""

from __future__ import annotations

from typing import NamedTuple

from inspector.core.snapshot import Group


class ArrayGroup(NamedTuple):
    """One group of arrays, such as the parameters.

    heading: its name in figures, tables and sentences.
    color: its fill in figures, from the scheme of Okabe and Ito.
    """

    heading: str
    color: str


ARRAY_GROUPS = {
    "params": ArrayGroup("parameters", "#0072B2"),  # blue
    "opt_state": ArrayGroup("optimizer state", "#E69F00"),  # orange
    "other": ArrayGroup("step and other state", "#56B4E9"),  # sky blue
    "batch": ArrayGroup("batch", "#009E73"),  # bluish green
    "output": ArrayGroup("output", "#CC79A7"),  # reddish purple
    "activation": ArrayGroup("activations", "#D55E00"),  # vermilion
    "gradient": ArrayGroup("gradients", "#F0E442"),  # yellow
}

# Keys of a path that name a group, by how certain they are. MaxText and Orbax write them in quotes.
_KEYS: tuple[dict[str, Group], ...] = (
    {"params": "params", "opt_state": "opt_state"},
    {
        "weights": "params",
        "opt": "opt_state",
        "optimizer": "opt_state",
        "optimizer_state": "opt_state",
    },
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
