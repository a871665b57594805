"""The groups of arrays: their headings and their colors, in the order in which they are shown.

A new group is added here and to `Group` in `inspector.core.snapshot`.
"""

from __future__ import annotations

from typing import NamedTuple


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
